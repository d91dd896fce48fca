"""Checks of code that is not run here: it compiles, its names exist, its options parse."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from website.blocks import ROOT, Block, PageError

_EXTRA: Final = re.compile(r"asmtune\[(?P<names>[\w,-]+)\]")
_VARIABLE: Final = re.compile(r"[A-Z_]+=")
_HELP: Final = ("-h", "--help")


def check(block: Block) -> None:
    """Check a block as far as it can be without running it.

    Raises:
        PageError: it does not compile, imports a name of asmtune's that is not there, or gives a
            command that is unknown, or with options that its parser refuses.
    """
    try:
        if block.language == "python":
            check_python(block.code)
        for command in commands(block.code) if block.language == "sh" else ():
            check_command(command)
        if block.elsewhere is not None:
            _check_elsewhere(block, block.elsewhere)
    except (PageError, SyntaxError) as error:
        raise PageError(f"{block.where}: {error}") from error


def check_python(code: str) -> None:
    """Compile code, and look for every name that it imports from asmtune.

    Raises:
        SyntaxError: it does not compile.
        PageError: a module or name of asmtune's is not there.
    """
    for node in ast.walk(compile(code, "<page>", "exec", ast.PyCF_ONLY_AST)):
        if isinstance(node, ast.Import):
            for name in node.names:
                _module(name.name)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            module = _module(node.module or "")
            for name in node.names:
                if module is not None and not hasattr(module, name.name):
                    _module(f"{node.module}.{name.name}")


def check_command(words: Sequence[str]) -> None:
    """Check a command line: asmtune's own by its parser, others as far as they are known.

    Raises:
        PageError: it is not known, or its parser refuses it.
    """
    words = [word for i, word in enumerate(words) if i or not _VARIABLE.match(word)]
    known: dict[str, Callable[[Sequence[str]], None]] = {
        "asmtune": parse_asmtune,
        "make": _check_make,
        "pip": _check_pip,
        "python": _check_python_command,
        "ssh": lambda words: check_command(words[1:]),  # the command of another host
    }
    if words[0] not in known:
        raise PageError(f"no way is known to check {words[0]!r}: add one, or let it run")
    known[words[0]](words[1:])


def parse_asmtune(arguments: Sequence[str]) -> None:
    """Parse a command line with asmtune's own parser; nothing is run.

    Raises:
        PageError: there is no such command, or it refuses an argument.
    """
    from typer.main import get_command

    from asmtune.cli.app import app

    command: Any = get_command(app)
    rest = list(arguments)
    while rest and (below := getattr(command, "commands", None)):
        if rest[0] in _HELP:
            return
        if rest[0] not in below:
            raise PageError(f"asmtune has no command {rest[0]!r}: {', '.join(below)}")
        command = below[rest.pop(0)]
    if getattr(command, "commands", None) or any(word in _HELP for word in rest):
        return
    try:
        command.make_context("asmtune", rest)
    except Exception as error:
        raise PageError(f"asmtune {shlex.join(arguments)}: {error}") from error


def commands(script: str) -> Iterator[list[str]]:
    """Yield the words of each command of a script; a pipe, a redirection or "&" ends one."""
    for line in script.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        ends = [i for i, word in enumerate(words) if word in ("|", ">", ">>", "&", "&&", ";")]
        if words:
            yield words[: ends[0]] if ends else words


def _module(name: str) -> Any:
    """Import a module of this project; None for another project's."""
    if name.partition(".")[0] not in ("asmtune", "benchmarks"):
        return None
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise PageError(f"no module or name {name!r}") from error


def _check_make(words: Sequence[str]) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for word in words:
        if word not in targets:
            raise PageError(f"the Makefile has no target {word!r}: {', '.join(targets)}")


def _check_pip(words: Sequence[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for found in _EXTRA.finditer(" ".join(words)):
        for name in found["names"].split(","):
            if name not in project["optional-dependencies"]:
                raise PageError(f"pyproject.toml has no extra {name!r}")


def _check_python_command(words: Sequence[str]) -> None:
    own = len(words) > 1 and words[1].startswith(("asmtune", "benchmarks", "website"))
    if own and words[0] == "-m" and importlib.util.find_spec(words[1]) is None:
        raise PageError(f"no module {words[1]!r}")


def _check_elsewhere(block: Block, file: str) -> None:
    path = ROOT / Path(file)
    text = path.read_text() if path.is_file() else ""
    for line in block.code.strip().splitlines():
        command = line.partition("#")[0].strip()
        if command not in text:
            raise PageError(f"{file} does not run {command!r}")
