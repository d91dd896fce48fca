"""Frequency at which a report's promises held: expected share, low end, chance of a drop.

    python -m benchmarks.promise ROWS.npz ... [--unlike KINDS.npz] [--output FILE]

Reads files of training rows (`asmtune model rows`), so that nothing is compiled. Every kernel is
ranked by a model that has not seen it, and promised by a table that was measured without it.
Kernels of `--unlike` are in no model. A mean gives each kernel the same weight. Coverage is how
often a task kept its low end, which says 0.9.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from asmtune.base.settings import Settings
from asmtune.predict.score.error import ErrorTable, gaps_of
from asmtune.predict.score.keep import AIM
from asmtune.workshop.replay.training_rows import SHIPPED, Examples, TaskRows
from benchmarks.harness import parser, write
from benchmarks.measured_error import LOW, NOISE, RankedTask, error_table
from benchmarks.unseen import rank_unseen

FOLDS = 10
"""Kernels are left out in as many groups: a fit for each kernel takes ten times as long."""

COUNTS = (1, 5, 10, 20)
"""Sizes that are promised for, besides `auto`."""


@dataclass(frozen=True)
class Held:
    """Promise made for a task, and the share that it kept."""

    file: str
    kernel: str
    promised: float
    low: float
    chance: float
    share: float
    dropped: bool
    kept: int


def main() -> None:
    """Rank, promise, and write."""
    arguments = parser(__doc__, "promise.json")
    arguments.add_argument("rows", type=Path, nargs="*", default=list(SHIPPED))
    arguments.add_argument("--unlike", type=Path, nargs="*", default=[])
    options = arguments.parse_args()
    loaded = {path: Examples.load(path) for path in dict.fromkeys([*options.rows, *options.unlike])}
    tasks = [(path.stem, task) for path, rows in loaded.items() for task in rows.tasks]
    unlike = {kernel for path in options.unlike for kernel in loaded[path].kernels}
    jobs = Settings.from_environment().jobs
    results = measured(*ranked_unseen(tasks, unlike, jobs), unlike)
    about = {"says": 1.0 - LOW, "folds": FOLDS, "unlike": sorted(unlike)}
    write(options.output, {**about, "scorers": results})
    for scorer, cuts in results.items():
        for cut, at in cuts.items():
            print(scorer, cut, *(f"{name}: {values}" for name, values in at["files"].items()))


def folds_of(kernels: Sequence[str]) -> dict[str, int]:
    """Number the fold of each kernel, the same each time."""
    order = np.random.default_rng(0).permutation(len(kernels))
    return {kernels[i]: place % FOLDS for place, i in enumerate(order)}


def ranked_unseen(
    tasks: Sequence[tuple[str, TaskRows]], unlike: Collection[str], jobs: int
) -> tuple[list[str], dict[str, list[RankedTask]]]:
    """Rank each task by scorers that have not seen its kernel; return files, and by scorer."""
    own = [task for _, task in tasks]
    fitted = [task for task in own if task.kernel not in unlike]
    place = {id(task): index for index, task in enumerate(own)}
    unseen = rank_unseen(fitted, {"assembly": own}, jobs, FOLDS)["assembly"]
    ranked: dict[str, list[RankedTask]] = {"learned": [], "roofline": []}
    for task, scores in sorted(unseen, key=lambda each: place[id(each[0])]):
        slowdown, roofline = task.slowdown.tolist(), (-task.base[:, 0]).tolist()
        ranked["learned"].append(RankedTask(task.kernel, scores, slowdown))
        ranked["roofline"].append(RankedTask(task.kernel, roofline, slowdown))
    return [file for file, _ in tasks], ranked


def measured(
    files: Sequence[str], ranked: Mapping[str, Sequence[RankedTask]], unlike: set[str]
) -> dict[str, Any]:
    """Compare promises with what was kept, by scorer and cut."""
    return {
        scorer: {cut: _summary(own) for cut, own in promises(files, tasks, unlike).items()}
        for scorer, tasks in ranked.items()
    }


def promises(
    files: Sequence[str], tasks: Sequence[RankedTask], unlike: set[str]
) -> dict[str, list[Held]]:
    """Make the promise for each task by a table of the kernels in other folds, for each cut."""
    folds = folds_of(list(dict.fromkeys(task.kernel for task in tasks)))
    made: dict[str, list[Held]] = {str(cut): [] for cut in ("auto", *COUNTS)}
    for fold in range(FOLDS):
        others = [task for task in tasks if folds[task.kernel] != fold]
        table = error_table(others, unlike)
        for file, task in zip(files, tasks, strict=True):
            if folds[task.kernel] == fold:
                for cut in ("auto", *COUNTS):
                    made[str(cut)].append(_held(file, task, table, cut))
    return made


def _held(file: str, task: RankedTask, table: ErrorTable, count: int | str) -> Held:
    order = sorted(range(len(task.scores)), key=lambda i: -task.scores[i])
    if isinstance(count, int):
        size, cut = count, table.cut(count)
    else:
        cut = table.cut_for(AIM)
        size = cut.size(gaps_of(task.scores[i] for i in order))
    least = min(task.slowdown[i] for i in order[:size])
    # All are kept: the best is among them, and reports say so.
    said = (1.0, 1.0, 0.0) if size >= len(order) else (cut.share, cut.low, cut.dropped)
    kept = (float(np.exp(-least)), least > NOISE, min(size, len(order)))
    return Held(file, task.kernel, *said, *kept)


def _summary(held: Sequence[Held]) -> dict[str, Any]:
    groups = {"all": list(held)}
    for one in held:
        groups.setdefault(one.file, []).append(one)
    return {"files": {name: _means(own) for name, own in groups.items()}}


def _means(held: Sequence[Held]) -> dict[str, float]:
    kernels = [one.kernel for one in held]
    weights = np.array([1.0 / kernels.count(kernel) for kernel in kernels])
    columns: dict[str, Sequence[float]] = {
        "promised": [one.promised for one in held],
        "share": [one.share for one in held],
        "low": [one.low for one in held],
        "coverage": [one.share >= one.low - 1e-9 for one in held],
        "chance": [one.chance for one in held],
        "dropped": [one.dropped for one in held],
        "kept": [one.kept for one in held],
    }
    means = {name: float(np.average(values, weights=weights)) for name, values in columns.items()}
    return {"tasks": len(held), **{name: round(mean, 4) for name, mean in means.items()}}


if __name__ == "__main__":
    main()
