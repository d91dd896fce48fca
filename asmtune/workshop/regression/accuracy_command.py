"""`asmtune accuracy`: errors of a kernel against a reference."""

from __future__ import annotations

from typing import Annotated

import typer

from asmtune.base.errors import InputError
from asmtune.cli.kernel_arguments import Dtype, Shape
from asmtune.cli.output import Output, TextForm, TextFormat, write_result
from asmtune.core.inputs.shapes import check_inputs, parse_assignments, unique
from asmtune.workshop.regression.api import accuracy as run_accuracy

Kernel = Annotated[str, typer.Argument(help="A kernel's name or file, or file.py:function.")]
Against = Annotated[
    str, typer.Option(help="fp64, fp32, a variant's name, or file.py:function with these inputs.")
]
Variants = Annotated[
    list[str],
    typer.Option(help="NAME=KEYWORDS, NAME=function(KEYWORDS), or a function's name; repeatable."),
]
Seed = Annotated[int, typer.Option(help="Seed of the inputs.")]


def accuracy(
    kernel: Kernel,
    against: Against = "fp64",
    shape: Shape = None,
    dtype: Dtype = None,
    variant: Variants = [],  # noqa: B006 - typer copies it
    seed: Seed = 0,
    form: TextFormat = TextForm.TEXT,
    output: Output = None,
) -> None:
    """Measure a kernel's errors against a reference, variants side by side.

    Exits with 3 where there is no GPU, and Triton's interpreter is not asked for.
    """
    check_inputs([] if shape is None else [shape], dtype)
    from asmtune.workshop.regression.accuracy_run import accuracy_json, accuracy_table

    run = run_accuracy(
        kernel,
        against=against,
        shape=None if shape is None else parse_assignments(shape, "--shape"),
        dtype=dtype,
        variants=unique("--variant", map(_variant, variant)),
        seed=seed,
    )
    write_result(accuracy_json(run) if form is TextForm.JSON else accuracy_table(run), output)


def _variant(text: str) -> tuple[str, str]:
    """Split NAME=SPEC; a function is its own name, with its keywords if it has any."""
    name, equals, spec = (part.strip() for part in text.partition("="))
    if "(" in name:  # of function(KEYWORDS)
        return text.strip(), text.strip()
    if not name or (equals and not spec):
        raise InputError(f"--variant {text!r} is neither NAME=SPEC nor a function's name")
    return name, spec or name
