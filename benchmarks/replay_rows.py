"""Replay of `learned` and `roofline` over stored training rows: no GPU, nothing compiled.

    python -m benchmarks.replay_rows [FILE.npz ...] [--unlike FILE.npz] [--output FILE]
        [--error error.json]

Each kernel is ranked by a model that has not seen it: the kernels of all files are drawn into 16
parts, and each part is ranked by a model of the others. Kernels of `--unlike` are ranked as well,
and are in no model. A file of training rows has at most
220 rows of a task, so that a task with more (most of the oracle's) is ranked on this choice
of its rows: its fastest third of that number, and a random choice of the rest.

With `--error` the tables of that file after compiling are measured anew, from these rankings; those
before compiling take sketches (`asmtune train --error`) and stay as they were.

Fits 16 models: some 10 s each on 2 cores.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from asmtune.base.settings import Settings
from asmtune.predict.score.error_file import Errors
from asmtune.predict.score.examples import MOST_ROWS, Examples, TaskRows
from asmtune.predict.score.learned import DATA
from asmtune.studies.replay.results import ScorerResult
from asmtune.studies.train import Unseen, rank_unseen, scorer_errors, unseen_result
from benchmarks.provenance import RESULTS, write

PARTS = 16
CUTS = ("top1", "top5", "top10", "worst_top10")


def main() -> None:
    """Replay, print a line a file, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="*", default=sorted(DATA.glob("*.npz")))
    parser.add_argument("--output", type=Path, default=RESULTS / "replay_rows.json")
    parser.add_argument("--error", type=Path, help="the file of scorers' errors to renew")
    parser.add_argument(
        "--unlike", type=Path, action="append", default=[], help="as of asmtune train"
    )
    options = parser.parse_args()
    paths = [*options.files, *options.unlike]
    files = {path.stem: Examples.load(path) for path in paths}
    unlike = {name for path in options.unlike for name in files[path.stem].kernels}
    tasks = [task for examples in files.values() for task in examples.tasks]
    start = time.perf_counter()
    jobs = Settings.from_environment().jobs
    seen = [task for task in tasks if task.kernel not in unlike]
    ranked = rank_unseen(seen, {"assembly": tasks}, jobs, PARTS)["assembly"]
    seconds = time.perf_counter() - start
    results = {name: _file(examples, ranked) for name, examples in files.items()}
    for name, result in results.items():
        for scorer, by_kernel in result["scorers"].items():
            print(f"{name:12} {scorer:9}", *(f"{by_kernel['all'][cut]:.3f}" for cut in CUTS))
    if options.error:
        _renew(options.error, files, ranked, unlike)
    write(
        options.output,
        {"files": results, "most_rows": MOST_ROWS, "parts": PARTS, "seconds": round(seconds)},
    )


def _renew(
    path: Path, files: Mapping[str, Examples], ranked: Unseen, unlike: Collection[str]
) -> None:
    """Measure the tables after compiling anew, and keep those before compiling."""
    before = Errors.load(path)
    sources = {
        name: versions
        for examples in files.values()
        for name, versions in examples.provenance["measured"].items()
    }
    after = scorer_errors({"assembly": ranked}, before.device, sources, unlike)
    sketched = {key: table for key, table in before.tables.items() if key[1] == "sketch"}
    earlier = before.provenance.get("sketches", before.provenance)
    about = {**after.provenance, "sketches": earlier}
    Errors(before.device, about, {**sketched, **after.tables}).save(path)


def _file(examples: Examples, ranked: Unseen) -> dict[str, dict[str, dict[str, object]]]:
    own = {id(task) for task in examples.tasks}
    learned = [each for each in ranked if id(each[0]) in own]
    roofline = [(task, (-task.base[:, 0]).tolist(), 0.0) for task, *_ in learned]
    about = {
        "tasks": len(learned),
        "rows": sum(len(task.slowdown) for task, *_ in learned),
        "tasks_thinned": sum(_is_thinned(task) for task, *_ in learned),
    }
    scorers = {"learned": _summary(learned), "roofline": _summary(roofline)}
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
