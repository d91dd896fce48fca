"""`asmtune diagnose`: names the cause of a kernel's wrong result."""

from __future__ import annotations

import json
from typing import Annotated, Final

import typer

from asmtune.base.errors import InputError
from asmtune.base.text import did_you_mean
from asmtune.cli.kernel_arguments import Arguments, KernelArguments, Only, with_functions
from asmtune.cli.output import Output, TextForm, TextFormat, write_result
from asmtune.core.hardware.shipped import load_target
from asmtune.core.inputs.shapes import check_inputs, parse_assignments

_WRONG: Final = 1
_RESULTS: Final = {"tf32": "fp32", "fp8": "fp16"}
"""Dtypes of results, by the first word of a row that is named for operands."""


def diagnose(
    kernel: Annotated[
        str,
        typer.Argument(help="A kernel module with a reference, by name or file; file.py:function."),
    ],
    shape: Annotated[
        str | None, typer.Option(help="Sizes to launch at as well: M=4096,N=4096.")
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="One of the module's; else its first.")] = None,
    device: Annotated[
        str | None, typer.Option(help="cuda or cpu; else a GPU where there is one.")
    ] = None,
    tolerance: Annotated[
        str, typer.Option(help='A row of the table of tolerances, such as "fp16 weights".')
    ] = "",
    target: Annotated[str, typer.Option(help="The device whose compiled code is read.")] = "H200",
    form: TextFormat = TextForm.TEXT,
    output: Output = None,
    arg: Arguments = [],  # noqa: B006 - typer copies it
    only: Only = None,
    reference: Annotated[
        str | None,
        typer.Option(help="file.py:function, in place of the module's reference(arguments)."),
    ] = None,
) -> None:
    """Find why a kernel's result is wrong: mask, accumulator, race, alignment or bounds.

    Launches are small, guarded, and run in a process of their own: on the GPU, or without one under
    Triton's interpreter. FILE.py:FUNCTION tries the launch of a host function, at other sizes of
    the tensors that --arg gives. Exits with 0 where nothing wrong is seen, 1 where something is,
    and 2 for bad input.
    """
    check_inputs((), dtype)
    if device not in (None, "cpu", "cuda"):
        raise InputError(f"--device {device!r}: cuda or cpu")
    named = KernelArguments(kernel, values=tuple(arg), only=only)
    with_functions([kernel], named, is_shaped=dtype is not None)
    machine = load_target(target)
    from asmtune.workshop.kernel_checks.diagnose import diagnose as find_cause
    from asmtune.workshop.kernel_checks.subjects import DiagnosisRequest
    from asmtune.workshop.kernel_checks.tolerances import TOLERANCES

    if tolerance and tolerance not in TOLERANCES:
        hint = did_you_mean(tolerance, TOLERANCES)
        raise InputError(f"--tolerance {tolerance!r}: one of {', '.join(TOLERANCES)}{hint}")
    first = tolerance.partition(" ")[0]
    request = DiagnosisRequest(
        kernel=kernel,
        shape=None if shape is None else parse_assignments(shape, "--shape"),
        dtype=dtype,
        device=device,
        tolerances={_RESULTS.get(first, first): tolerance} if tolerance else {},
        values=arg,
        only=only,
        reference=reference,
        target=target,
    )
    found = find_cause(request, machine)
    is_json = form is TextForm.JSON
    write_result(json.dumps(found.document(), indent=2) if is_json else found.text(), output)
    if found.wrong:
        raise typer.Exit(_WRONG)
