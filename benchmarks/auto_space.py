"""Measure how much of the best recorded speed lies in the space that a kernel's source proposes.

    python -m benchmarks.auto_space [--output FILE]
    python -m benchmarks.auto_space --tune 20 [--seconds S] [--output FILE]

Without `--tune` it needs no GPU and compiles nothing. For each kernel of recorded timings on an
H200, the fastest recorded config that `space="auto"` contains is set beside the fastest of all
that were recorded: those of the kernel's hand-written space. Constexprs that are no axes have the
hand-written default's values. It is a lower bound: what nobody recorded of the proposed space
counts nothing.

With `--tune N`, N of these kernels, drawn by a seed, are tuned on the GPU at hand at their first
shape: once over the hand-written space, once over the proposal, both with the effort `quick` and
empty caches. The choices are then timed in one interleaved race.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from asmtune.base.errors import InputError
from asmtune.core.kernel_module import KernelModule, load_kernel_module
from asmtune.core.records.artifacts import Failure
from asmtune.core.space.proposal import proposal_for
from asmtune.core.space.space import Space
from asmtune.measure.timing.policy import TimingPolicy
from asmtune.tuning.tuner import tune
from asmtune.workshop.replay.oracle import Task, load_oracle
from asmtune.workshop.replay.results import geometric_mean
from benchmarks.harness import RESULTS, empty_caches, parser, raced, table, until, write

HERE = Path(__file__).parent
FILES = {
    "h200_families.json.gz": HERE / "corpus" / "families",
    "h200_families2.json.gz": HERE / "corpus" / "families",
    "h200_kinds.json.gz": HERE / "corpus" / "kinds",
}


def main() -> None:
    """Measure and write."""
    made = parser(__doc__, None)
    made.add_argument("--tune", type=int, metavar="N", help="kernels to tune on this GPU")
    made.add_argument("--seconds", type=float, help="begin no kernel later than this")
    options = made.parse_args()
    if options.tune is None:
        rows = [row for file, folder in FILES.items() for row in rows_of(RESULTS / file, folder)]
        print(document(write(options.output or RESULTS / "auto_space.json", {"rows": rows})))
        return
    rows = [tuned_row(path) for path in until(drawn(options.tune), options.seconds, "more time")]
    output = options.output or RESULTS / "auto_space_tuned.json"
    print(document_tuned(write(output, {"rows": rows})))


def drawn(count: int) -> list[Path]:
    """Draw kernels of the recordings by a seed: their modules' files."""
    names = [
        folder / f"{kernel}.py"
        for file, folder in FILES.items()
        for kernel in sorted({task.kernel for task in load_oracle(RESULTS / file).tasks})
    ]
    return random.Random(0).sample(names, count)


def tuned_row(path: Path) -> dict[str, Any]:
    """Tune a kernel over its hand-written space and over the proposal; race the two choices."""
    module, seconds = load_kernel_module(str(path)), {}
    problem = module.problem(module.shapes[0], module.check_dtype(None), "cuda")
    hand = module.space()
    row: dict[str, Any] = {"kernel": module.name, "shape": dict(problem.shape)}
    try:
        proposed, proposal = proposal_for(problem, hand)
    except InputError as error:
        return {**row, "refused": str(error)}
    ways, launches = {"hand": (problem, hand), "auto": (proposed, proposal.space)}, {}
    for name, (own, space) in ways.items():
        start = time.perf_counter()
        with empty_caches():
            config = tune(own, space, effort="quick", isolate=False).winner.plain
        seconds[name] = round(time.perf_counter() - start, 2)
        row[f"{name}_config"] = config.values()
        launches[name] = partial(own.kernel[own.grid], **{**own.arguments, **config.all_kwargs()})
    times = raced(launches, TimingPolicy())
    for name, found in times.items():
        row[f"{name}_us"] = None if isinstance(found, Failure) else round(found.median_us, 3)
    print(json.dumps(row), flush=True)
    return {**row, "seconds": seconds}


def document_tuned(content: Mapping[str, Any]) -> str:
    """Tabulate what tuning reaches in the proposed spaces, by the hand-written ones' best."""
    rows = [row for row in content["rows"] if row.get("hand_us") and row.get("auto_us")]
    shares = sorted(row["hand_us"] / row["auto_us"] for row in rows)
    good = sum(share >= 0.98 for share in shares)
    means = [f"{geometric_mean(some):.3f}" for some in (shares, shares[:-1])]
    heads = ("kernels tuned both ways", "speed, hand-written = 1", "without the largest")
    cells = [f"{len(rows)} of {len(content['rows'])}", *means, f"{good}", f"{shares[0]:.3f}"]
    return table((*heads, "0.98 or more", "worst"), [cells])


def rows_of(file: Path, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield a row for each kernel of a file: its tasks, and what of them the proposal keeps."""
    tasks: dict[str, list[Task]] = {}
    for task in load_oracle(file).tasks:
        tasks.setdefault(task.kernel, []).append(task)
    for kernel, own in tasks.items():
        module = load_kernel_module(str(folder / f"{kernel}.py"))
        row: dict[str, Any] = {"kernel": kernel, "tasks": len(own)}
        try:
            shares = [share_of(module, task) for task in own]
        except InputError as error:
            yield {**row, "refused": str(error)}
            continue
        yield {**row, "kept": round(geometric_mean(shares), 4) if all(shares) else 0.0}


def share_of(module: KernelModule, task: Task) -> float:
    """Return the share of the best recorded speed that the proposed space contains; 0 for none.

    Raises:
        InputError: nothing can be proposed.
    """
    problem = module.problem(task.shape, task.dtype, "meta")
    default = module.space().first(**problem.shape).values()
    space = proposal_for(problem)[1].space
    given = {name: problem.arguments[name] for name in space.axes if name in problem.arguments}
    timed = {row.config: row.ms for row in task.rows if row.ms is not None}
    inside = [ms for c, ms in timed.items() if is_in({**given, **c.values()}, space, default)]
    return min(timed.values()) / min(inside) if inside else 0.0


def is_in(values: Mapping[str, Any], space: Space, default: Mapping[str, Any]) -> bool:
    """Return whether a config is a point of a space, with the default's other values."""
    axes = space.axes
    fits = all(
        value in axes[name] if name in axes else value == default.get(name, value)
        for name, value in values.items()
    )
    return fits and all(constraint.holds(dict(values)) for constraint in space.constraints)


def document(content: Mapping[str, Any]) -> str:
    """Tabulate how many kernels have a proposal, and what it keeps."""
    rows = content["rows"]
    kept = [row["kept"] for row in rows if "kept" in row]
    good = sum(share >= 0.98 for share in kept)
    some = [share for share in kept if share]
    worst = min(kept)
    cells = (
        f"{len(kept)} of {len(rows)}",
        f"{geometric_mean(some):.3f} of {len(some)}",
        f"{good}",
        f"{worst:.3f}",
    )
    heads = ("kernels with a proposal", "share of the best recorded speed", "0.98 or more", "worst")
    return table(heads, [cells])


if __name__ == "__main__":
    main()
