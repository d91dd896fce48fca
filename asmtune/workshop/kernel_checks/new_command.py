"""`asmtune new`: writes the files of a new kernel."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from asmtune.cli.output import print_line


def new(
    name: Annotated[str, typer.Argument(help="The kernel's name, and its files'.")],
) -> None:
    """Write a kernel that works, to edit: module with reference, test and benchmark.

    The kernel adds a row to a matrix. The files go to the working directory.
    """
    from asmtune.workshop.kernel_checks.new_kernel import write_kernel

    for path in write_kernel(name, Path()):
        print_line(f"wrote {path}")
    if importlib.util.find_spec("pytest") is None:
        print_line("pytest, which runs the test, is not installed: python -m pip install pytest")
    print_line(f"next: python -m pytest test_{name}.py")
    print_line(f"      asmtune prune-report {name}.py --target H200")
    print_line(f"      python bench_{name}.py --target 1.0")
