"""Replay of `learned` and `roofline` over stored training rows: no GPU, nothing compiled.

    python -m benchmarks.replay_rows [FILE.npz ...] [--unlike FILE.npz] [--sketches FOLDER]
        [--output FILE] [--error error.json]

Each kernel is ranked by a model that has not seen it: the kernels of all files are drawn into 16
parts, and each part is ranked by a model of the others. Kernels of `--unlike` are ranked as well,
and are in no model. A file of training rows has at most
220 rows of a task, so that a task with more (most of the oracle's) is ranked on this choice
of its rows: its fastest third of that number, and a random choice of the rest.

The folder of `--sketches` has rows of the same configs before compiling, in files of equal names
(`asmtune model rows --sketches`); they are ranked by the same models. With `--error` that file's
tables are measured anew from these rankings.

Fits 16 models: some 10 s each on 2 cores.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from asmtune.base.settings import Settings
from asmtune.workshop.replay.results import ScorerResult
from asmtune.workshop.replay.training_rows import MOST_ROWS, SHIPPED, Examples, TaskRows
from benchmarks.harness import RESULTS, SHARES, laid_out, parser, ranked_by, write
from benchmarks.unseen import (
    Unseen,
    by_roofline,
    rank_unseen,
    scorer_errors,
    unseen_result,
)

PARTS = 16
CUTS = ("top1", "top5", "top10", "worst_top10")


def main() -> None:
    """Replay, and write the result."""
    arguments = parser(__doc__, "replay_rows.json")
    arguments.add_argument("files", type=Path, nargs="*", default=list(SHIPPED))
    arguments.add_argument("--sketches", type=Path, default=RESULTS / "sketches")
    arguments.add_argument("--error", type=Path, help="the file of scorers' errors to renew")
    arguments.add_argument(
        "--unlike", type=Path, action="append", default=[], help="rows of kinds that others lack"
    )
    options = arguments.parse_args()
    paths = [*options.files, *options.unlike]
    files = {path.stem: Examples.load(path) for path in paths}
    sketches = {name: _sketches(options.sketches / f"{name}.npz") for name in files}
    unlike = {name for path in options.unlike for name in files[path.stem].kernels}
    tasks = {
        "assembly": [task for examples in files.values() for task in examples.tasks],
        "sketch": [task for own in sketches.values() for task in own],
    }
    start = time.perf_counter()
    jobs = Settings.from_environment().jobs
    seen = [task for task in tasks["assembly"] if task.kernel not in unlike]
    ranked = rank_unseen(seen, {key: own for key, own in tasks.items() if own}, jobs, PARTS)
    seconds = time.perf_counter() - start
    results = {name: _file(files[name].tasks, sketches[name], ranked) for name in files}
    if options.error:
        _renew(options.error, files, ranked, unlike)
    about = {"most_rows": MOST_ROWS, "parts": PARTS, "seconds": round(seconds)}
    print(document(write(options.output, {"files": results, **about})))


LABELS = {
    "oracle": "the {} of the first table",
    "families": "{} families",
    "families2": "{} more families",
    "h100_families": "{} of all these, timed on an H100",
    "kinds": "{} kernels of kinds that these lack",
}
"""Words for the kernels of each file, in the order of the table."""


def document(content: Mapping[str, Any]) -> str:
    """Tabulate the share of the best speed that each scorer keeps, by file."""
    lines, files = [], content["files"]
    for file in sorted(files, key=[*LABELS, *files].index):
        data = files[file]
        for scorer, found in data["scorers"].items():
            label = LABELS.get(file, "{} of " + file).format(len(found["kernels"]))
            names = {"kernels": label, "ranked": ranked_by(scorer)}
            lines.append({**names, **data["about"], **found["all"]})
    columns = {"kernels": "{kernels}", "ranked by": "{ranked}", "tasks": "{tasks}"}
    columns |= {"of them thinned": "{tasks_thinned}", **SHARES}
    del columns["top 10%"]
    return laid_out(columns, lines)


def _sketches(path: Path) -> tuple[TaskRows, ...]:
    return Examples.load(path).tasks if path.is_file() else ()


def _renew(
    path: Path,
    files: Mapping[str, Examples],
    ranked: Mapping[str, Unseen],
    unlike: Collection[str],
) -> None:
    """Measure the tables of a file anew; those of a moment without rows are left out."""
    sources = {
        name: versions
        for examples in files.values()
        for name, versions in examples.provenance["measured"].items()
    }
    devices = dict.fromkeys(examples.provenance["device"] for examples in files.values())
    scorer_errors(ranked, list(devices), sources, unlike).save(path)


def _file(
    compiled: Sequence[TaskRows], sketched: Sequence[TaskRows], ranked: Mapping[str, Unseen]
) -> dict[str, dict[str, dict[str, object]]]:
    scorers = {}
    for moment, tasks in (("assembly", compiled), ("sketch", sketched)):
        own = {id(task) for task in tasks}
        learned = [each for each in ranked.get(moment, ()) if id(each[0]) in own]
        roofline = by_roofline([task for task, _ in learned])
        when = "" if moment == "assembly" else ", before compiling"
        if learned:
            scorers |= {f"learned{when}": _summary(learned), f"roofline{when}": _summary(roofline)}
    about = {
        "tasks": len(compiled),
        "rows": sum(len(task.slowdown) for task in compiled),
        "tasks_thinned": sum(map(_is_thinned, compiled)),
    }
    return {"about": about, "scorers": scorers}


def _is_thinned(task: TaskRows) -> bool:
    return len(task.slowdown) == MOST_ROWS


def _summary(ranked: Unseen) -> dict[str, object]:
    result: ScorerResult = unseen_result(ranked)
    kernels = {kernel: _cuts(result.summary(kernel)) for kernel in result.kernels}
    return {"all": _cuts(result.summary()), "kernels": kernels}


def _cuts(summary: dict[str, float]) -> dict[str, float]:
    return {cut: round(summary[cut], 4) for cut in CUTS}


if __name__ == "__main__":
    main()
