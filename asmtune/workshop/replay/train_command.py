"""`asmtune model train`: training rows of the learned scorer from files of timings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from asmtune.base.errors import InputError
from asmtune.base.settings import Settings
from asmtune.cli.output import check_destinations, print_line
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import load_target, match_device
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.scorers import make_scorer
from asmtune.report.progress import ProgressBar
from asmtune.workshop.replay.oracle import Oracle, load_oracle

if TYPE_CHECKING:
    from asmtune.predict.score.examples import Examples


def train(
    oracles: Annotated[list[Path], typer.Argument(help="Files of recorded timings.")],
    kernels: Annotated[list[Path], typer.Option(help="Folder of their modules; one a file.")],
    output: Annotated[Path, typer.Option(help="The file of rows to write: .npz.")],
    sketches: Annotated[
        Path | None,
        typer.Option(help="A file of the same configs' rows before compiling to write: .npz."),
    ] = None,
) -> None:
    """Write training rows of the learned scorer, without a GPU."""
    written = [("--output", output), *([("--sketches", sketches)] if sketches else [])]
    check_destinations(written, {f"the file {path}": path for path in oracles})
    recorded = [load_oracle(path) for path in oracles]
    folders = _folders(kernels, len(recorded))
    device, target = _machine(recorded)
    # scikit-learn and numpy, which no other command needs before it has read its input.
    from asmtune.workshop.replay.train import examples, moment_rows

    with ProgressBar() as progress:
        settings = Settings.from_environment()
        funnel = Funnel(target, make_scorer("chance"), settings, progress=progress)
        rows = [
            task
            for oracle, folder in zip(recorded, folders, strict=True)
            for task in moment_rows(oracle, folder, funnel, early=sketches is not None)
        ]
    if not rows:
        raise InputError("no task of the files has five configs that were timed and compile")
    sources = {path.name: oracle.versions for path, oracle in zip(oracles, recorded, strict=True)}
    rows_to_save = examples([task.assembly for task in rows], target, device, sources)
    _save(rows_to_save, "--output", output)
    count = sum(len(task.slowdown) for task in rows_to_save.tasks)
    print_line(f"{output}: {count} rows of {len(rows)} tasks", err=True)
    if sketches:
        sketched = [task.sketch for task in rows if task.sketch is not None]
        _save(examples(sketched, target, device, sources), "--sketches", sketches)


def _save(rows: Examples, option: str, path: Path) -> None:
    try:
        rows.save(path)
    except OSError as failure:
        raise InputError(f"{option} {path}: {failure.strerror}") from failure


def _folders(kernels: list[Path], files: int) -> list[Path]:
    if len(kernels) not in (1, files):
        raise InputError(f"{len(kernels)} --kernels for {files} files: give one, or each")
    return kernels * files if len(kernels) == 1 else kernels


def _machine(recorded: list[Oracle]) -> tuple[str, Target]:
    devices = list(dict.fromkeys(oracle.device for oracle in recorded))
    if len(devices) > 1:
        raise InputError(f"the files are of several devices ({', '.join(devices)}): one at a time")
    return devices[0], match_device(devices[0]) or load_target(devices[0])
