"""`asmtune model rows` and `train`: from timings to rows, and from rows to the learned scorer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from asmtune.base.errors import InputError, ParseError
from asmtune.base.settings import Settings
from asmtune.cli.output import check_destinations, print_line
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import load_target, match_device
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.scorers import make_scorer
from asmtune.report.progress import ProgressBar
from asmtune.workshop.replay.oracle import Oracle, load_oracle

if TYPE_CHECKING:
    from asmtune.predict.score.trees import Trees
    from asmtune.workshop.replay.training_rows import Examples


def rows(
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
    # NumPy, which no other command needs before it has read its input.
    from asmtune.workshop.replay.flow import moment_rows
    from asmtune.workshop.replay.training_rows import examples

    with ProgressBar() as progress:
        settings = Settings.from_environment()
        funnel = Funnel(target, make_scorer("chance"), settings, progress=progress)
        made = [
            task
            for oracle, folder in zip(recorded, folders, strict=True)
            for task in moment_rows(oracle, folder, funnel, early=sketches is not None)
        ]
    if not made:
        raise InputError("no task of the files has five configs that were timed and compile")
    sources = {path.name: oracle.versions for path, oracle in zip(oracles, recorded, strict=True)}
    rows_to_save = examples([task.assembly for task in made], target, device, sources)
    _save(rows_to_save, "--output", output)
    count = sum(len(task.slowdown) for task in rows_to_save.tasks)
    print_line(f"{output}: {count} rows of {len(made)} tasks", err=True)
    if sketches:
        sketched = [task.sketch for task in made if task.sketch is not None]
        _save(examples(sketched, target, device, sources), "--sketches", sketches)


def train(
    output: Annotated[Path, typer.Option(help="The file of trees to write: .npz.")],
    rows: Annotated[
        list[Path] | None, typer.Argument(help="Files of rows, beside those that ship.")
    ] = None,
    without: Annotated[
        list[str], typer.Option(help="A kernel whose rows are left out; may be given again.")
    ] = [],  # noqa: B006 - typer copies it
) -> None:
    """Fit the learned scorer on rows, without a GPU; `--scorer learned:FILE.npz` ranks by it.

    It needs LightGBM (pip install '.[train]' in a clone of asmtune).
    """
    check_destinations([("--output", output)], {f"the file {path}": path for path in rows or ()})
    from asmtune.workshop.replay.fitting import model_of
    from asmtune.workshop.replay.training_rows import SHIPPED, Examples

    try:
        examples = [Examples.load(path) for path in (*SHIPPED, *(rows or ()))]
    except ParseError as error:
        raise InputError(str(error)) from error
    known = {kernel for part in examples for kernel in part.kernels}
    if unknown := sorted(set(without) - known):
        raise InputError(f"--without {unknown[0]}: no file has rows of this kernel")
    trees = model_of(examples, Settings.from_environment().jobs, without)
    _save(trees, "--output", output)
    about = trees.about
    line = f"{output}: fitted on {about['rows']} rows of {len(about['kernels'])} kernels"
    print_line(line, err=True)


def _save(made: Examples | Trees, option: str, path: Path) -> None:
    try:
        made.save(path)
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
