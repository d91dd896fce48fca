"""`asmtune accuracy`: errors of a kernel against a reference, and a guard of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from asmtune.base.errors import InputError
from asmtune.cli.kernel_arguments import Dtype
from asmtune.cli.output import check_destinations, print_line, write_note, write_result
from asmtune.core.inputs.shapes import check_inputs, parse_assignments, unique
from asmtune.workshop.regression.api import NoGpuError
from asmtune.workshop.regression.api import accuracy as run_accuracy
from asmtune.workshop.regression.bench_command import NO_GPU
from asmtune.workshop.regression.check_command import (
    INCOMPARABLE,
    Format,
    check_format,
    end,
    rendered,
)

if TYPE_CHECKING:
    from asmtune.workshop.regression.accuracy_run import AccuracyRun

Kernel = Annotated[str, typer.Argument(help="A kernel's name or file, or file.py:function.")]
Against = Annotated[
    str, typer.Option(help="fp64, fp32, a variant's name, or file.py:function with these inputs.")
]
Shape = Annotated[str | None, typer.Option(help="Sizes, such as M=4096,N=4096.")]
Variants = Annotated[
    list[str],
    typer.Option(help="NAME=KEYWORDS, NAME=function(KEYWORDS), or a function's name; repeatable."),
]
Seed = Annotated[int, typer.Option(help="Seed of the inputs.")]
Limits = Annotated[Path | None, typer.Option("--check", help="Judge by a file of limits.")]
Write = Annotated[
    Path | None,
    typer.Option("--write-limits", help="A file of limits to write: half again this run's errors."),
]


def accuracy(
    kernel: Kernel,
    against: Against = "fp64",
    shape: Shape = None,
    dtype: Dtype = None,
    variant: Variants = [],  # noqa: B006 - typer copies it
    seed: Seed = 0,
    format_: Format = "text",
    check: Limits = None,
    write_limits: Write = None,
) -> None:
    """Measure a kernel's errors against a reference, variants side by side.

    With --check it judges them by limits: exits with 0 where all hold, with 1 where one is
    broken, with 3 where no limit applies, or one of a variant that is missing. Exits with 4
    where there is no GPU, and Triton's interpreter is not asked for.
    """
    check_format(format_)
    if check is None and format_ == "markdown":
        raise InputError("--format markdown needs --check FILE")
    if write_limits is not None:
        check_destinations([("--write-limits", write_limits)], {"--check": check} if check else {})
    check_inputs([] if shape is None else [shape], dtype)
    from asmtune.workshop.regression import accuracy_guard

    limits = () if check is None else accuracy_guard.read_limits(check)
    try:
        run = run_accuracy(
            kernel,
            against=against,
            shape=None if shape is None else parse_assignments(shape, "--shape"),
            dtype=dtype,
            variants=unique("--variant", map(_variant, variant)),
            seed=seed,
        )
    except NoGpuError as error:
        print_line(f"asmtune: {error}", err=True)
        raise typer.Exit(NO_GPU) from error
    _report(run, format_ if check is None else None)
    if write_limits is not None:
        accuracy_guard.write_limits(write_limits, accuracy_guard.limits_of(run))
    if check is not None:
        result = accuracy_guard.judge(run, limits)
        write_result(rendered(result, format_))
        end(result)
        if "gone" in result.counts:
            raise typer.Exit(INCOMPARABLE)


def _variant(text: str) -> tuple[str, str]:
    """Split NAME=SPEC; a function is its own name, with its keywords if it has any."""
    name, equals, spec = (part.strip() for part in text.partition("="))
    if "(" in name:  # of function(KEYWORDS)
        return text.strip(), text.strip()
    if not name or (equals and not spec):
        raise InputError(f"--variant {text!r} is neither NAME=SPEC nor a function's name")
    return name, spec or name


def _report(run: AccuracyRun, form: str | None) -> None:
    """Write a run; beside a check's result, its table is a note."""
    from asmtune.workshop.regression.accuracy_run import accuracy_json, accuracy_table

    if form is None:
        write_note(accuracy_table(run))
    else:
        write_result(accuracy_json(run) if form == "json" else accuracy_table(run))
