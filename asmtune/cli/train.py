"""`asmtune train`: training rows of the learned scorer from files of timings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from asmtune.cli.output import write_result
from asmtune.errors import InputError
from asmtune.funnel import Funnel
from asmtune.oracle import Oracle, load_oracle
from asmtune.report.progress import ProgressBar
from asmtune.report.tables import scorers_table
from asmtune.score import make_scorer
from asmtune.settings import Settings
from asmtune.target import Target, load_target, match_device


def train(
    oracles: Annotated[list[Path], typer.Argument(help="Files of recorded timings.")],
    kernels: Annotated[list[Path], typer.Option(help="Folder of their modules; one a file.")],
    output: Annotated[Path, typer.Option(help="The file of training rows to write: .npz.")],
    table: Annotated[bool, typer.Option(help="Print what is kept of unseen kernels.")] = False,
) -> None:
    """Write training rows of the learned scorer, without a GPU."""
    # scikit-learn and numpy, which no other command needs before it has read its input.
    from asmtune.train import examples, leave_one_kernel_out, task_rows

    recorded = [load_oracle(path) for path in oracles]
    if len(kernels) == 1:
        kernels = kernels * len(recorded)
    if len(kernels) != len(recorded):
        raise InputError(f"{len(kernels)} --kernels for {len(recorded)} files: give one, or each")
    device, target = _machine(recorded)
    settings = Settings.from_environment()
    with ProgressBar() as progress:
        funnel = Funnel(target, make_scorer("chance"), settings, progress=progress)
        pairs = zip(recorded, kernels, strict=True)
        tasks = [task for oracle, folder in pairs for task in task_rows(oracle, folder, funnel)]
    if not tasks:
        raise InputError("no task of the files has five configs that were timed and compile")
    versions = (oracle.versions for oracle in recorded)
    sources = dict(zip((path.name for path in oracles), versions, strict=True))
    made = examples(tasks, target, device, sources)
    try:
        made.save(output)
    except OSError as error:
        raise InputError(f"--output {output}: {error.strerror}") from error
    rows = sum(len(task.slowdown) for task in made.tasks)
    typer.echo(f"{output}: {rows} rows of {len(tasks)} tasks", err=True)
    if table:
        write_result(scorers_table([leave_one_kernel_out(tasks, settings.jobs)], device))


def _machine(recorded: list[Oracle]) -> tuple[str, Target]:
    """The one device that all files were recorded on."""
    devices = list(dict.fromkeys(oracle.device for oracle in recorded))
    if len(devices) > 1:
        raise InputError(f"the files are of several devices ({', '.join(devices)}): one at a time")
    return devices[0], match_device(devices[0]) or load_target(devices[0])
