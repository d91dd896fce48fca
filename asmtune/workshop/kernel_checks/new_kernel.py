"""`asmtune new`: writes a kernel module, its test and its benchmark, which run as written."""

from __future__ import annotations

import importlib.util
import keyword
import re
from pathlib import Path
from string import Template
from typing import Annotated, Final

import typer

from asmtune.base.atomic_write import write_whole
from asmtune.base.errors import InputError
from asmtune.cli.output import print_line

_FILES: Final = {"module": "{}.py", "test": "test_{}.py", "bench": "bench_{}.py"}
"""Names of the files by the names of their templates."""


def new(
    name: Annotated[str, typer.Argument(help="The kernel's name, and its files'.")],
) -> None:
    """Write a kernel that works, to edit: module with reference, test and benchmark.

    The kernel adds a row to a matrix. The files go to the working directory.
    """
    for path in write_kernel(name, Path()):
        print_line(f"wrote {path}")
    if importlib.util.find_spec("pytest") is None:
        print_line("pytest, which runs the test, is not installed: python -m pip install pytest")
    print_line(f"next: python -m pytest test_{name}.py")
    print_line(f"      asmtune prune-report {name}.py --target H200")
    print_line(f"      python bench_{name}.py --target 1.0")


def write_kernel(name: str, folder: Path) -> tuple[Path, ...]:
    """Write the files of a new kernel, all of them or none.

    Raises:
        InputError: the name cannot be used, or a file exists or cannot be written.
    """
    texts = kernel_files(name)
    paths = [folder / file for file in texts]
    for path in paths:
        if path.exists() or path.is_symlink():
            raise InputError(f"new: {path} exists; take another name, or remove it")
    written: list[Path] = []
    try:
        for path, text in zip(paths, texts.values(), strict=True):
            write_whole(path, text.encode())
            written.append(path)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        raise InputError(f"new: {error.filename or folder}: {error.strerror}") from error
    return tuple(paths)


def kernel_files(name: str) -> dict[str, str]:
    """Return the texts of the files by name: module, test, benchmark.

    Raises:
        InputError: the name is no Python name, begins with _, or is that of something else.
    """
    if not (name.isidentifier() and name.isascii()) or keyword.iskeyword(name):
        raise InputError(f"new: the name {name!r} is not a Python name, such as scale_rows")
    folder = Path(__file__).parent / "templates"
    templates = {what: (folder / f"{what}.txt").read_text() for what in _FILES}
    words = {word for text in templates.values() for word in re.findall(r"\w+", text)}
    if name.startswith("_") or name in {*words, "conftest"}:
        raise InputError(f"new: the name {name!r} has a meaning in the files; take another")
    if importlib.util.find_spec(name) is not None and not Path(f"{name}.py").exists():
        raise InputError(f"new: {name!r} is the name of an installed module; take another")
    return {
        _FILES[what].format(name): Template(text).substitute(name=name)
        for what, text in templates.items()
    }
