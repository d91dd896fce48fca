"""Worth of a user's history: what `learned` keeps after 100 timings on a made-up device.

    python -m benchmarks.history [--kernel NAME]... [--output FILE]

Needs no GPU and no compile: the tasks are the shipped training rows. Each kernel is ranked by a
model that has seen the others alone. The made-up devices scale each recorded time by the unit
that its config keeps busy longest, by a factor of a half to twice drawn for each unit. The user
has timed 100 configs of one task, or 100 of three tasks: half of them the best ranked, the rest
at random; of each kernel three tasks are the first to be timed. Ranked are the timed task and
another shape of the kernel. The same is done with the recorded times as they are. "Wrong" are
the tasks whose first pick by the shipped model keeps less than 0.95.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from asmtune.predict.score.examples import Examples, TaskRows
from asmtune.predict.score.history import RecordedTask
from asmtune.predict.score.learned import DATA, Learned
from asmtune.predict.score.refined import Fitter
from asmtune.predict.score.vectors import BASE
from benchmarks.provenance import RESULTS, write

TIMINGS: Final = 100
DEVICES: Final = (None, 1, 2)
"""Seeds of the made-up devices; None for the recorded times."""

KERNELS: Final = ("gemm", "attention", "layernorm", "softmax", "batched_matmul", "softmax_bwd")
UNITS: Final = ("tensor", "issue", "shared", "l1", "special", "l2", "latency", "dram")
_COLUMNS: Final = [BASE.index(f"us_{unit}") for unit in UNITS]
WRONG: Final = 0.95

Shares = dict[str, list[tuple[float, float]]]


def on_device(task: TaskRows, seed: int | None) -> TaskRows:
    """Return a task as a made-up device would have timed it."""
    if seed is None:
        return task
    factors = np.random.default_rng(seed).uniform(-np.log(2), np.log(2), len(UNITS))
    slowdown = task.slowdown + factors[task.base[:, _COLUMNS].argmax(axis=1)]
    return replace(task, slowdown=(slowdown - slowdown.min()).astype(np.float32))


def timed(task: TaskRows, learned: Learned, count: int) -> RecordedTask:
    """Return the rows that a user has timed: half the best ranked, the rest at random."""
    order = np.argsort(-learned.rank_columns(task.base), kind="stable")
    count = min(count, len(order) // 2)
    best, rest = order[: count // 2], order[count // 2 :]
    drawn = np.random.default_rng(0).choice(rest, count - len(best), replace=False)
    rows = np.concatenate([best, drawn])
    slowdown = task.slowdown[rows]
    part = replace(task, base=task.base[rows], slowdown=slowdown - slowdown.min())
    return RecordedTask(part, "H200", "made-up device")


def kept(task: TaskRows, scores: np.ndarray) -> float:
    """Return the share of the best speed that the first pick keeps."""
    return float(np.exp(-task.slowdown[int(np.argmax(scores))]))


def ranked(
    history: Sequence[RecordedTask], kernel: str, learned: Learned, tasks: Sequence[TaskRows]
) -> list[tuple[float, float]]:
    """Return what first picks keep, shipped and refined; refined only where the check allows."""
    fitter = Fitter(learned.rank_columns, kernel, "H200")
    strength = fitter.check(history).strength
    correction = replace(fitter.fit(history), strength=strength)
    pairs = []
    for task in tasks:
        scores = learned.rank_columns(task.base)
        refined = correction.scores(task.base, scores) if strength else scores
        pairs.append((kept(task, scores), kept(task, refined)))
    return pairs


def measure(
    kernels: Sequence[str], tasks: Sequence[TaskRows], log: Callable[[str], None]
) -> dict[str, Any]:
    """Measure every kernel with every device and history."""
    results: dict[str, Shares] = {}
    seconds: list[float] = []
    for kernel in kernels:
        own = [task for task in tasks if task.kernel == kernel]
        learned = Learned().without_kernel(kernel)
        assert isinstance(learned, Learned)
        for seed in DEVICES:
            shapes = [on_device(task, seed) for task in own]
            for count in (1, 3):
                if len(shapes) <= count:
                    continue
                name = f"{'recorded' if seed is None else 'made-up'}, {count} tasks timed"
                shares = results.setdefault(name, {})
                for first in sorted({0, len(shapes) // 2, len(shapes) - 1}):
                    past = [shapes[(first + n) % len(shapes)] for n in range(count)]
                    history = [timed(task, learned, TIMINGS // count) for task in past]
                    other = shapes[(first + count) % len(shapes)]
                    start = time.perf_counter()
                    same, another = ranked(history, kernel, learned, [past[0], other])
                    seconds.append(time.perf_counter() - start)
                    shares.setdefault("the timed task", []).append(same)
                    shares.setdefault("another shape", []).append(another)
        log(f"{kernel}: {len(own)} tasks")
    summary = {
        name: {what: _summary(pairs) for what, pairs in shares.items()}
        for name, shares in results.items()
    }
    return {"first_pick": summary, "seconds_a_fit": round(float(np.median(seconds)), 2)}


def _summary(pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    shares = np.array(pairs)
    wrong = shares[shares[:, 0] < WRONG]
    return {
        "tasks": len(shares),
        "shipped": round(float(shares[:, 0].mean()), 4),
        "refined": round(float(shares[:, 1].mean()), 4),
        "wrong": {
            "tasks": len(wrong),
            "shipped": round(float(wrong[:, 0].mean()), 4) if len(wrong) else None,
            "refined": round(float(wrong[:, 1].mean()), 4) if len(wrong) else None,
        },
    }


def main() -> None:
    """Measure, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel", action="append", help="a kernel of the shipped rows")
    parser.add_argument("--output", type=Path, default=RESULTS / "history.json")
    options = parser.parse_args()
    parts = [Examples.load(path) for path in sorted(DATA.glob("*.npz"))]
    tasks = [task for part in parts for task in part.tasks]
    kernels = options.kernel or list(KERNELS)
    result = measure(kernels, tasks, lambda line: print(line, flush=True))
    for name, shares in result["first_pick"].items():
        for what, row in shares.items():
            print(
                f"{name:26}{what:16}{row['shipped']:8.3f} -> {row['refined']:.3f}  {row['wrong']}"
            )
    write(
        options.output,
        {
            **result,
            "timings": TIMINGS,
            "kernels": kernels,
            "made_up_devices": sum(seed is not None for seed in DEVICES),
            "rows": [path.name for path in sorted(DATA.glob("*.npz"))],
            "measured_on": parts[0].provenance["device"],
        },
    )


if __name__ == "__main__":
    main()
