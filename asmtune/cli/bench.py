"""`asmtune bench`: times kernels on their stored configs, for `asmtune check`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from asmtune.base.errors import InputError
from asmtune.base.settings import Settings
from asmtune.cli.output import check_destinations
from asmtune.cli.prune_report import Dtype
from asmtune.cli.tune import Shapes, ShapesFile
from asmtune.report.cells import words

if TYPE_CHECKING:
    from asmtune.studies.regression.processes import Collected
    from asmtune.studies.regression.rows import BenchRequest, BenchRow
    from asmtune.studies.regression.run import Missed

FAILED: Final = 1
NO_GPU: Final = 4

PROCESSES: Final = 8
"""Of each run: where all 8 are slower than the other's 8, chance explains it once in 12,870, so
that up to 128 rows can be told apart at a level of 1% for all of them together."""


Kernels = Annotated[
    list[str] | None, typer.Argument(help="Kernels' names or files; default: all shipped.")
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="The run's file: .json or .json.gz.")
]
Processes = Annotated[
    int, typer.Option(min=1, max=200, help="So many time all kernels, one after another.")
]
Label = Annotated[str, typer.Option(help="What the run is called, such as a commit.")]


def bench(
    kernels: Kernels = None,
    output: Output = None,
    shape: Shapes = [],  # noqa: B006 - typer copies it
    shapes: ShapesFile = None,
    dtype: Dtype = None,
    processes: Processes = PROCESSES,
    label: Label = "",
) -> None:
    """Time kernels on their stored configs on this machine's GPU, and write every sample.

    Without a shape all that is stored for the modules' own shapes and dtypes is timed. Exits
    with 1 where a kernel fails or a shape has no stored config, with 4 where there is no GPU.
    """
    path = _checked(output)
    # Load Triton, which no other command needs before it has read its input.
    from asmtune.studies.regression import processes as bench_processes
    from asmtune.studies.regression.files import write_run
    from asmtune.studies.regression.rows import BenchRequest, BenchRow

    asked = BenchRequest(kernels or (), shape, shapes, dtype, _device(kernels or ()))
    rows = asked.rows(Settings.from_environment())
    wanted = [row for row in rows if isinstance(row, BenchRow)]
    missed = [row for row in rows if not isinstance(row, BenchRow)]
    _tell(asked, wanted, missed)
    collected = bench_processes.bench(wanted, processes, partial(_progress, processes))
    for number, reason in collected.failures.items():
        subject = collected.rows[number].subject
        typer.echo(f"asmtune: {subject.kernel} {words(subject.shape)}: {reason}", err=True)
    run = collected.run(label, missed)
    write_run(path, run)
    typer.echo(f"{path}: {len(run.rows)} rows, {len(run.processes)} processes", err=True)
    if run.missed:
        raise typer.Exit(FAILED)


def _checked(output: Path | None) -> Path:
    """Where the run is written; found out before minutes are spent on it."""
    if output is None:
        raise InputError("bench: name the file to write: --output run.json")
    check_destinations([("--output", output)])
    return output


def _device(kernels: Sequence[str]) -> str:
    """The GPU's name, once the kernels are known to be some."""
    import torch

    from asmtune.core.kernel_module import load_kernel_module

    for kernel in kernels:
        load_kernel_module(kernel)
    if not torch.cuda.is_available():
        typer.echo("asmtune: bench needs a CUDA GPU; PyTorch finds none on this machine", err=True)
        raise typer.Exit(NO_GPU)
    from asmtune.measure.timing.nvml import device_name

    return device_name()


def _progress(processes: int, number: int, collected: Collected) -> None:
    typer.echo(f"process {number} of {processes}: {len(collected.left)} rows", err=True)


def _tell(asked: BenchRequest, wanted: list[BenchRow], missed: list[Missed]) -> None:
    """What is not timed, what to do, and what is timed on a record that no longer holds.

    Raises:
        InputError: nothing can be timed.
    """
    for name, count in asked.unstored.items():
        stored = sum(row.subject.kernel == name for row in wanted)
        advice = f"asmtune tune {name} stores one a shape"
        typer.echo(
            f"asmtune: {name}: nothing is stored for {count} of {count + stored} shapes and "
            f"dtypes, which are left out; {advice}",
            err=True,
        )
    for one in missed:
        where = f"{one.subject.kernel} {words(one.subject.shape)}"
        typer.echo(f"asmtune: {where}: {one.reason}", err=True)
    stale = [row for row in wanted if row.remark]
    if stale:
        typer.echo(
            f"asmtune: {len(stale)} of {len(wanted)} rows are timed on configs of older records, "
            f"such as {stale[0].subject.kernel} ({stale[0].remark})",
            err=True,
        )
    if not wanted:
        raise InputError(
            f"bench: no config is stored for any of it on {asked.device}; "
            "asmtune tune KERNEL finds and stores one, `asmtune cache ls` lists them"
        )
