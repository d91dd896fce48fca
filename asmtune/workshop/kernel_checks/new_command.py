"""`asmtune new`: writes the files of a new kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from asmtune.cli.output import print_line


def new(
    name: Annotated[str, typer.Argument(help="The kernel's name, and its files'.")],
    inputs: Annotated[
        str,
        typer.Option(help='Tensors: "x: (M, N) bf16, w: (N,) bf16"; the first is the main one.'),
    ],
    output: Annotated[str, typer.Option(help='Sizes of the output: "(M, N)", or "(M,)" of rows.')],
) -> None:
    """Write a kernel that works, to edit: module with reference, test and benchmark.

    The kernel adds its inputs element by element, or multiplies them and sums the last size of the
    first, which the output then lacks. The files go to the working directory.
    """
    from asmtune.workshop.kernel_checks.new_kernel import (  # loads PyTorch
        KernelSignature,
        write_kernel,
    )

    signature = KernelSignature.parse(name, inputs, output)
    for path in write_kernel(signature, Path()):
        print_line(f"wrote {path}")
    print_line(f"next: python -m pytest test_{name}.py")
    print_line(f"      asmtune prune-report {name}.py --target H200")
