"""What a config interpolated for a shape is worth: the oracle's shapes left out one at a time.

    python -m benchmarks.interpolate --oracle FILE --kernels DIR [--output FILE]

Needs no GPU and no compile. For each task a model is fitted to the kernel's other shapes
(`predict.score.shape_model`), and picks a config of the task's space. Shares are of the best
speed of the task, by its recorded times.

- `tuned`: each other shape has the timings of a search over its recorded rows, as
  `benchmarks.devices` runs it (effort balanced, ranked by `roofline`, with noise): the winner
  and what else was timed, 30 to 60 configs of most kernels;
- `all`: each other shape has the times of every config;
- `nearest`: the winner of the nearest other shape that is in the task's space, to compare.

Most shapes lie outside what is left: sizes differ by factors of 4 to 1,000, and two of a kernel's
shapes at most have sizes that 16 does not divide, for which Triton compiles other code. `narrow`
are the picks that `on_miss="interpolate"` keeps; of the others it says so, and tunes them.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.core.kernel_module import load_kernel_module
from asmtune.core.oracle import Task, load_oracle
from asmtune.core.problem import Problem
from asmtune.predict.score.examples import Examples
from asmtune.predict.score.learned import DATA
from asmtune.predict.score.shape_model import WIDE, ShapeModel, TimedShape
from asmtune.runtime.misses.lookups import distance
from asmtune.studies.replay.results import geometric_mean
from benchmarks.devices import matched_task, record_of, shape_text
from benchmarks.provenance import RESULTS, write

REPEATS: Final = 20
"""Picks that the time of one is the median of."""


@dataclass(frozen=True)
class Case:
    """A recorded task on meta tensors, with all its times and those of a search."""

    task: Task
    problem: Problem
    us: Mapping[Config, float]
    tuned: Mapping[Config, float]

    def programs(self, config: Config) -> int:
        """Return the number of programs of a launch."""
        return math.prod(self.problem.programs(config))

    def share(self, config: Config | None) -> float:
        """Return the share of the best speed that a config keeps; 0 where it was not timed."""
        return min(self.us.values()) / self.us[config] if config in self.us else 0.0


def cases(oracle: Path, kernels: Path) -> dict[str, list[Case]]:
    """Read the tasks by kernel, and search each over its recorded rows."""
    target = load_target("H200")
    rows = {
        (moment, task.kernel, shape_text(task.shape)): task
        for moment, folder in (("assembly", DATA), ("sketch", RESULTS / "sketches"))
        for task in Examples.load(folder / "oracle.npz").tasks
    }
    modules = {path.stem: load_kernel_module(str(path)) for path in kernels.glob("*.py")}
    by_kernel: dict[str, list[Case]] = {}
    for task in load_oracle(oracle).tasks:
        place = task.kernel, shape_text(task.shape)
        own = matched_task(task, task, {m: rows[(m, *place)] for m in ("assembly", "sketch")})
        if own is None:
            raise SystemExit(f"{task.name}: its training rows are not of this recording")
        searched = record_of(own, target, 0).us
        tuned = {own.configs[row]: us for row, us in searched.items()}
        times = {row.config: 1e3 * row.ms for row in task.rows if row.ms is not None}
        module = modules[task.kernel]
        problem = module.problem(task.shape, module.dtypes[0], "meta")
        by_kernel.setdefault(task.kernel, []).append(Case(task, problem, times, tuned))
    return by_kernel


def nearest(case: Case, others: list[Case]) -> Config | None:
    """Return the winner of the nearest other shape that is in the case's space."""
    for other in sorted(others, key=lambda o: distance(case.task.shape, o.task.shape) or math.inf):
        winner = min(other.tuned, key=other.tuned.__getitem__)
        if winner in case.us:
            return winner
    return None


def left_out(case: Case, others: list[Case], which: str) -> dict[str, Any]:
    """Fit to the other shapes and pick for this one."""
    timed = [TimedShape(o.task.shape, o.us if which == "all" else o.tuned) for o in others]
    start = time.perf_counter()
    model = ShapeModel.of(timed, load_target("H200").sms, case.task.shape, case.programs)
    fit_s = time.perf_counter() - start
    if model is None:
        raise SystemExit(f"{case.task.name}: nothing to fit")
    pick = model.pick(case.task.shape, case.us.__contains__)
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        model.pick(case.task.shape)
        seconds.append(time.perf_counter() - start)
    if pick is None:
        raise SystemExit(f"{case.task.name}: no config timed at other shapes is in its space")
    return {
        "kernel": case.task.kernel,
        "shape": dict(case.task.shape),
        "config": str(pick.config),
        "kept": round(case.share(pick.config), 4),
        "expected_loss": round(pick.loss, 4),
        "fit_s": round(fit_s, 4),
        "pick_us": round(1e6 * statistics.median(seconds), 1),
    }


def summary(kept: list[float]) -> dict[str, Any]:
    """Return number, geometric mean and worst of shares."""
    if not kept:
        return {"tasks": 0}
    mean, worst = geometric_mean(kept), min(kept)
    return {"tasks": len(kept), "mean": round(mean, 4), "worst": round(worst, 4)}


def main() -> None:
    """Replay, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--oracle", type=Path, required=True, help="recorded timings on an H200")
    parser.add_argument("--kernels", type=Path, required=True, help="folder of their modules")
    parser.add_argument("--output", type=Path, default=RESULTS / "interpolate.json")
    options = parser.parse_args()
    by_kernel = cases(options.oracle, options.kernels)
    results: dict[str, Any] = {}
    for which in ("tuned", "all", "nearest"):
        rows = []
        for own in by_kernel.values():
            for case in own:
                others = [other for other in own if other is not case]
                if which == "nearest":
                    kept = round(case.share(nearest(case, others)), 4)
                    rows.append({"kernel": case.task.kernel, "kept": kept})
                else:
                    rows.append(left_out(case, others, which))
        results[which] = _result(rows)
        for name, row in results[which]["kernels"].items():
            print(f"{which}, {name}: {row['mean']:.3f}, worst {row['worst']:.3f}")
        print(which, {k: v for k, v in results[which].items() if k not in ("kernels", "picks")})
    write(options.output, {"wide": WIDE, **results})


def _result(rows: list[dict[str, Any]]) -> dict[str, Any]:
    kernels = dict.fromkeys(row["kernel"] for row in rows)
    result: dict[str, Any] = {
        "kernels": {n: summary([r["kept"] for r in rows if r["kernel"] == n]) for n in kernels},
        "every": summary([row["kept"] for row in rows]),
    }
    if "expected_loss" not in rows[0]:
        return result
    result["narrow"] = summary([row["kept"] for row in rows if row["expected_loss"] <= WIDE])
    result["wide"] = summary([row["kept"] for row in rows if row["expected_loss"] > WIDE])
    result["fit_s"] = round(statistics.median(row["fit_s"] for row in rows), 3)
    result["slowest_fit_s"] = round(max(row["fit_s"] for row in rows), 3)
    result["pick_us"] = round(statistics.median(row["pick_us"] for row in rows))
    return {**result, "picks": rows}


if __name__ == "__main__":
    main()
