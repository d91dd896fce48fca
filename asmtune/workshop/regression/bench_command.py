"""`asmtune bench`: times kernels on their stored configs, for `asmtune check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from asmtune.base.errors import InputError
from asmtune.cli.kernel_arguments import (
    Arguments,
    Axes,
    Dtype,
    Grid,
    KernelArguments,
    Only,
    SpaceOption,
    with_functions,
)
from asmtune.cli.output import check_destinations, print_line, write_note
from asmtune.cli.tune import Shapes, ShapesFile
from asmtune.core.inputs.shapes import check_inputs
from asmtune.workshop.regression.api import BENCH_PROCESSES
from asmtune.workshop.regression.api import bench as run_bench

FAILED: Final = 1


Kernels = Annotated[
    list[str] | None,
    typer.Argument(help="Kernels' names, files, or file.py:function; default: all shipped."),
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="The run's file: .json or .json.gz.")
]
Processes = Annotated[
    int, typer.Option(min=1, max=200, help="Number of timing processes, run one after another.")
]
Label = Annotated[str, typer.Option(help="What the run is called, such as a commit.")]


def bench(
    kernels: Kernels = None,
    output: Output = None,
    shape: Shapes = [],  # noqa: B006 - typer copies it
    shapes: ShapesFile = None,
    dtype: Dtype = None,
    processes: Processes = BENCH_PROCESSES,
    label: Label = "",
    axis: Axes = [],  # noqa: B006
    arg: Arguments = [],  # noqa: B006
    grid: Grid = None,
    only: Only = None,
    space: SpaceOption = None,
) -> None:
    """Time kernels on their stored configs on this machine's GPU, and write every sample.

    Times and rates are shown on stderr.
    Without a shape all that is stored for the modules' own shapes and dtypes is timed. With
    FILE.py:FUNCTION, which --arg and --axis are for, each launch is timed: on the config that
    `asmtune tune` has stored, or as the function makes it where nothing tunes it. Exits with 1
    where a kernel fails or a shape has no stored config, with 3 where there is no GPU.
    """
    if output is None:
        raise InputError("bench: name the file to write: --output run.json")
    check_destinations([("--output", output)])
    sizes: list[str | Path] = [*shape, *([] if shapes is None else [shapes])]
    check_inputs(sizes, dtype)
    named = KernelArguments("", None, None, tuple(axis), tuple(arg), grid, only, space)
    sources = with_functions(kernels or (), named, is_shaped=bool(sizes or dtype))
    # Load Triton, which no other command needs before it has read its input.
    from asmtune.workshop.regression.check_page import bench_table
    from asmtune.workshop.regression.run import write_run

    run = run_bench(
        sources,
        shapes=sizes,
        dtype=dtype,
        processes=processes,
        label=label,
        progress=lambda line: print_line(f"asmtune: {line}", err=True),
    )
    write_run(output, run)
    write_note(bench_table(run))
    print_line(f"{output}: {len(run.rows)} rows, {len(run.processes)} processes", err=True)
    if run.missed:
        raise typer.Exit(FAILED)
