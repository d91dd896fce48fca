"""Worth of configs interpolated for a shape: the oracle's shapes left out one at a time.

    python -m benchmarks.interpolate --oracle FILE --kernels DIR [--output FILE]

Needs no GPU and no compile. For each task a model is fitted to the kernel's other shapes
(`predict.score.shape_model`), and picks a config of the task's space. Shares are of the best
speed of the task, by its recorded times.

- `tuned`: each other shape has the timings of a search over its recorded rows, as
  `benchmarks.devices` runs it (effort balanced, ranked by `roofline`, with noise): the winner
  and what else was timed, 30 to 60 configs of most kernels;
- `all`: each other shape has the times of every config;
- `nearest`: the winner of the nearest other shape that is in the task's space, to compare.

`families` is the same for the recording of other kernels, of which those with four shapes count:
three others are too few to be sure.

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
from asmtune.predict.score.shape_model import FEWEST_SHAPES, WIDE, ShapeModel, TimedShape
from asmtune.runtime.misses.lookups import distance
from asmtune.studies.replay.flow import recorded_configs
from asmtune.studies.replay.results import geometric_mean
from benchmarks.devices import matched_task, record_of, shape_text
from benchmarks.provenance import RESULTS, write

FAMILIES: Final = Path(__file__).with_name("families")

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

    def share(self, config: Config) -> float:
        """Return the share of the best speed that a timed config keeps."""
        return min(self.us.values()) / self.us[config]


@dataclass(frozen=True)
class Recording:
    """A recording on an H200.

    Attributes:
        name: that of its training rows.
        file: its timings.
        kernels: folder of its kernels' modules.
    """

    name: str
    file: Path
    kernels: Path

    def cases(self) -> dict[str, list[Case]]:
        """Read the tasks by kernel and dtype, and search each over its recorded rows."""
        target = load_target("H200")
        rows = {
            (moment, task.kernel, shape_text(task.shape), task.dtype): task
            for moment, folder in (("assembly", DATA), ("sketch", RESULTS / "sketches"))
            for task in Examples.load(folder / f"{self.name}.npz").tasks
        }
        by_kernel: dict[str, list[Case]] = {}
        tasks = load_oracle(self.file).tasks
        dtypes: dict[str, set[str]] = {}
        for task in tasks:
            dtypes.setdefault(task.kernel, set()).add(task.dtype)
        modules = {name: load_kernel_module(str(self.kernels / f"{name}.py")) for name in dtypes}
        for task in tasks:
            place = task.kernel, shape_text(task.shape), task.dtype
            own = matched_task(task, task, {m: rows[(m, *place)] for m in ("assembly", "sketch")})
            if own is None:
                raise SystemExit(f"{task.name}: its training rows are not of this recording")
            searched = record_of(own, target, 0).us
            tuned = {own.configs[row]: us for row, us in searched.items()}
            times = {row.config: 1e3 * row.ms for row in task.rows if row.ms is not None}
            problem, _ = recorded_configs(modules[task.kernel], task)
            name = task.kernel if len(dtypes[task.kernel]) == 1 else f"{task.kernel}, {task.dtype}"
            by_kernel.setdefault(name, []).append(Case(task, problem, times, tuned))
        return {name: own for name, own in by_kernel.items() if len(own) > FEWEST_SHAPES}


def nearest(case: Case, others: list[Case]) -> Config | None:
    """Return the winner of the nearest other shape that is in the case's space."""
    for other in sorted(others, key=lambda o: distance(case.task.shape, o.task.shape) or math.inf):
        winner = min(other.tuned, key=other.tuned.__getitem__)
        if winner in case.us:
            return winner
    return None


def left_out(case: Case, others: list[Case], which: str) -> dict[str, Any] | None:
    """Fit to the other shapes and pick for this one; None where the shapes do not compare."""
    timed = [TimedShape(o.task.shape, o.us if which == "all" else o.tuned) for o in others]
    start = time.perf_counter()
    model = ShapeModel.of(timed, load_target("H200").sms, case.task.shape, case.programs)
    fit_s = time.perf_counter() - start
    pick = None if model is None else model.pick(case.task.shape, case.us.__contains__)
    if model is None or pick is None:
        return None
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        model.pick(case.task.shape)
        seconds.append(time.perf_counter() - start)
    return {
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
    oracle = Recording("oracle", options.oracle, options.kernels)
    families = Recording("families", RESULTS / "h200_families.json.gz", FAMILIES)
    results = {"wide": WIDE, **replayed(oracle.cases()), "families": replayed(families.cases())}
    write(options.output, results)


def replayed(by_kernel: Mapping[str, list[Case]]) -> dict[str, Any]:
    """Leave each shape of a recording out, by each kind of data."""
    splits = [
        (name, case, [other for other in own if other is not case])
        for name, own in by_kernel.items()
        for case in own
    ]
    results: dict[str, Any] = {}
    for which in ("tuned", "all", "nearest"):
        rows, compared = [], []
        for name, case, others in splits:
            if which == "nearest":
                winner = nearest(case, others)
                row = winner and {"kept": round(case.share(winner), 4)}
            else:
                row = left_out(case, others, which)
            if row:
                rows.append({"kernel": name, **row})
                compared.append((name, case, others))
        splits = compared  # the rows of one table are of the same shapes
        results[which] = _result(rows)
        for name, row in results[which]["kernels"].items():
            print(f"{which}, {name}: {row['mean']:.3f}, worst {row['worst']:.3f}")
        print(which, {k: v for k, v in results[which].items() if k not in ("kernels", "picks")})
    return results


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
