"""Replay of `learned` from one device to another, over stored training rows: nothing compiled.

    python -m benchmarks.transfer [FILE.npz ...] [--sketches FOLDER] [--output FILE]

Tasks that were recorded on all devices of the files are ranked on each of them: by models of the
same tasks as recorded on each device, of all rows of each device, and of all rows of all devices.
Each kernel is ranked by models that have not seen it on any device: the kernels are drawn into 16
parts, and each part is ranked by models of the others. `roofline` is not fitted, and is listed
beside them. Rows before compiling are in the folder of `--sketches`, in files of equal names.

Fits 16 models for each set of rows: some 6 minutes on 2 cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from asmtune.base.settings import Settings
from asmtune.predict.score.examples import MOST_ROWS, Examples, TaskRows
from asmtune.predict.score.learned import DATA
from asmtune.workshop.replay.train import Unseen, by_roofline, rank_unseen, unseen_result
from benchmarks.harness import RESULTS, parser, write

PARTS = 16

Key = tuple[str, str, str]


def main() -> None:
    """Replay, print a line for each device and model, and write the result."""
    arguments = parser(__doc__, "transfer.json")
    arguments.add_argument("files", type=Path, nargs="*", default=sorted(DATA.glob("*.npz")))
    arguments.add_argument("--sketches", type=Path, default=RESULTS / "sketches")
    options = arguments.parse_args()
    rows = {
        "assembly": _by_device(options.files),
        "sketch": _by_device([options.sketches / path.name for path in options.files]),
    }
    compiled = rows["assembly"]
    common = set.intersection(*({_key(task) for task in own} for own in compiled.values()))
    judged = {
        f"{moment} {device}": [task for task in own if _key(task) in common]
        for moment, devices in rows.items()
        for device, own in devices.items()
    }
    trained = {
        **{f"{d}, the same tasks": judged[f"assembly {d}"] for d in compiled},
        **{f"{d}, all rows": own for d, own in compiled.items()},
        "all devices": [task for own in compiled.values() for task in own],
    }
    jobs = Settings.from_environment().jobs
    scorers: dict[str, dict[str, dict[str, float]]] = {
        where: {"roofline": _shares(by_roofline(tasks))} for where, tasks in judged.items()
    }
    for name, seen in trained.items():
        for where, ranked in rank_unseen(seen, judged, jobs, PARTS).items():
            scorers[where][f"learned from {name}"] = _shares(ranked)
            print(f"{where:16} {name:24}", *scorers[where][f"learned from {name}"].values())
    about = {device: {"tasks": len(own)} for device, own in compiled.items()}
    kernels = len({kernel for kernel, *_ in common})
    write(
        options.output,
        {
            "devices": about,
            "judged": {"tasks": len(common), "kernels": kernels, "most_rows": MOST_ROWS},
            "parts": PARTS,
            "scorers": scorers,
        },
    )


def _by_device(paths: Sequence[Path]) -> dict[str, list[TaskRows]]:
    devices: dict[str, list[TaskRows]] = {}
    for examples in map(Examples.load, paths):
        devices.setdefault(examples.target, []).extend(examples.tasks)
    return devices


def _key(task: TaskRows) -> Key:
    return task.kernel, repr(sorted(task.shape.items())), task.dtype


def _shares(ranked: Unseen) -> dict[str, float]:
    return {cut: round(share, 4) for cut, share in unseen_result(ranked).summary().items()}


if __name__ == "__main__":
    main()
