"""`asmtune model train`: training rows of the learned scorer from files of timings."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from asmtune.base.errors import InputError
from asmtune.base.settings import Settings
from asmtune.cli.output import check_destinations, print_line, write_result
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import load_target, match_device
from asmtune.core.oracle import Oracle, load_oracle
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.scorers import make_scorer
from asmtune.report.progress import ProgressBar
from asmtune.workshop.replay.results import scorers_table

if TYPE_CHECKING:
    from asmtune.predict.score.error import Errors
    from asmtune.predict.score.examples import Examples
    from asmtune.workshop.replay.train import MomentRows, Unseen


def train(
    oracles: Annotated[list[Path], typer.Argument(help="Files of recorded timings.")],
    kernels: Annotated[list[Path], typer.Option(help="Folder of their modules; one a file.")],
    output: Annotated[
        Path,
        typer.Option(help="The file of rows to write: .npz."),
    ],
    error: Annotated[
        Path | None, typer.Option(help="The file of scorers' errors to write: .json.")
    ] = None,
    unlike: Annotated[
        list[Path] | None,
        typer.Option(
            help="One of the files, of kernels of kinds that the others lack: in --error they "
            "have three quarters of the weight."
        ),
    ] = None,
    sketches: Annotated[
        Path | None,
        typer.Option(help="A file of the same configs' rows before compiling to write: .npz."),
    ] = None,
    table: Annotated[bool, typer.Option(help="Print what is kept of unseen kernels.")] = False,
) -> None:
    """Write training rows of the learned scorer, without a GPU.

    With --error or --table each kernel is ranked by a model of the others alone, before
    compiling and after, which takes a fit of some seconds a kernel.
    """
    asked = [("--error", error), ("--sketches", sketches)]
    written = [("--output", output), *((name, path) for name, path in asked if path)]
    check_destinations(written, {f"the file {path}": path for path in oracles})
    _check_unlike(unlike or [], oracles, error)
    recorded = [load_oracle(path) for path in oracles]
    folders = _folders(kernels, len(recorded))
    device, target = _machine(recorded)
    # scikit-learn and numpy, which no other command needs before it has read its input.
    from asmtune.workshop.replay.train import examples, moment_rows, scorer_errors, unseen_result

    settings = Settings.from_environment()
    with ProgressBar() as progress:
        funnel = Funnel(target, make_scorer("chance"), settings, progress=progress)
        pairs = zip(recorded, folders, strict=True)
        early = table or error is not None or sketches is not None
        rows = [
            task
            for oracle, folder in pairs
            for task in moment_rows(oracle, folder, funnel, early=early)
        ]
    if not rows:
        raise InputError("no task of the files has five configs that were timed and compile")
    sources = {path.name: oracle.versions for path, oracle in zip(oracles, recorded, strict=True)}
    rows_to_save = examples([task.assembly for task in rows], target, device, sources)
    other_kinds = {
        task.kernel
        for path, oracle in zip(oracles, recorded, strict=True)
        for task in (oracle.tasks if path in (unlike or []) else ())
    }
    ranked = _ranked(rows, other_kinds, settings.jobs) if table or error else {}
    errors = scorer_errors(ranked, [device], sources, other_kinds) if error else None
    _save(rows_to_save, "--output", output)
    count = sum(len(task.slowdown) for task in rows_to_save.tasks)
    print_line(f"{output}: {count} rows of {len(rows)} tasks", err=True)
    if sketches:
        sketched = [task.sketch for task in rows if task.sketch is not None]
        _save(examples(sketched, target, device, sources), "--sketches", sketches)
    if errors and error:
        _save(errors, "--error", error)
    if table:
        results = [unseen_result(tasks_ranked, moment) for moment, tasks_ranked in ranked.items()]
        write_result(scorers_table(results, device))


def _check_unlike(unlike: Sequence[Path], oracles: Sequence[Path], error: Path | None) -> None:
    """Refuse `--unlike` without `--error`, with a path that is no given file, or with all."""
    if unlike and error is None:
        raise InputError("--unlike weighs kernels of the error: give --error FILE too")
    for path in unlike:
        if path not in oracles:
            raise InputError(f"--unlike {path}: none of the files of timings; give it there too")
    if unlike and set(unlike) >= set(oracles):
        raise InputError("--unlike: all files are of other kinds; give one to fit on")


def _ranked(
    rows: Sequence[MomentRows], other_kinds: Collection[str], jobs: int
) -> dict[str, Unseen]:
    """Rank every kernel by a model that has seen neither it nor any kernel of other kinds."""
    from asmtune.workshop.replay.train import rank_unseen

    compiled = [task.assembly for task in rows]
    seen = [task for task in compiled if task.kernel not in other_kinds]
    sketched = [task.sketch for task in rows if task.sketch is not None]
    return rank_unseen(seen, {"assembly": compiled, "sketch": sketched}, jobs)


def _save(rows: Examples | Errors, option: str, path: Path) -> None:
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
