"""Names that a newcomer tries first: the version, help, attributes of the package, a repr."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
import triton
import triton.language as tl
import typer

import asmtune
from asmtune.cli.app import EXAMPLES, app, run


@triton.jit
def add(x_ptr, n, BLOCK: tl.constexpr):
    """Stand for a kernel that never runs."""


def fresh(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python anew, with more variables."""
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **variables},
    )


def commands() -> Iterator[tuple[str, ...]]:
    """All commands and groups of the command line, by their words."""
    group = typer.main.get_command(app)
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        yield (name,)
        yield from ((name, inner) for inner in getattr(command, "commands", ()))


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """`--version` and `__version__` give the version of the package."""
    version = metadata.version("asmtune")
    assert run(["--version"]) == 0
    assert capsys.readouterr() == (f"asmtune {version}\n", "")
    assert asmtune.__version__ == version


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Every command has its help under both names, with two examples that it takes."""
    for words in ((), *commands()):
        for option in ("-h", "--help"):
            assert run([*words, option]) == 0
            printed = capsys.readouterr()
            assert " ".join(("Usage: asmtune", *words)) in printed.out
            assert printed.err == "", words
            assert printed.out.count("\n    asmtune ") == (2 if words else 0), words
    group = typer.main.get_command(app)
    for name, lines in EXAMPLES.items():
        for line in lines:
            assert line.startswith(name.split()[0])
            command, given = group, shlex.split(line)
            while given and given[0] in getattr(command, "commands", ()):
                command = command.commands[given.pop(0)]  # type: ignore[attr-defined]
            command.make_context("asmtune", given, resilient_parsing=False)


REFUSED = (
    ("prune-report", "nosuch"),
    ("prune-report", "softmax", "--axis", "BLOCK"),
    ("prune-report", "softmax", "--scorer", "nosuch"),
    ("explain", "softmax", "--code", "llvm"),
    ("tune", "softmax", "--effort", "hard"),
    ("cache", "show", "zz"),
)


def test_arguments_are_refused_at_once() -> None:
    """No error of an argument waits for PyTorch, or for what reads assembly."""
    code = (
        "import sys; from asmtune.cli.app import run\n"
        f"for words in {REFUSED!r}: assert run(words) == 2, words\n"
        "print({'torch', 'triton', 'asmtune.predict.prune.flow'} & sys.modules.keys())"
    )
    done = fresh("-c", code)
    assert done.stdout == "set()\n", done.stderr


def test_help_of_a_program_is_its_own(tmp_path: Path) -> None:
    """`asmtune run program.py -h` leaves -h to the program."""
    (tmp_path / "program.py").write_text("import sys; print(sys.argv[1:])\n")
    done = fresh("-m", "asmtune", "run", str(tmp_path / "program.py"), "-h")
    assert (done.returncode, done.stdout) == (0, "['-h']\n")


def test_dir_has_public_names_alone() -> None:
    """`dir(asmtune)` lists what is for users, loaded or not, and each is there."""
    done = fresh("-c", "import asmtune; print(dir(asmtune)); asmtune.shipped")
    assert "AttributeError" in done.stderr
    assert done.stdout.strip() == str(dir(asmtune))
    folders = ["kernel_checks", "kernels", "lowprec", "rules"]
    assert dir(asmtune) == sorted([*asmtune.__all__, *folders])
    assert all(hasattr(asmtune, name) for name in dir(asmtune))


@pytest.mark.slow(seconds=5)
def test_commands_that_compile_leave_the_interpreter_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With TRITON_INTERPRET=1 a kernel is compiled and ranked all the same, after a line."""
    axes = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "num_warps": 8, "num_stages": 3}
    options = [word for name, value in axes.items() for word in ("--axis", f"{name}={value}")]
    command = ("prune-report", "tiled_matmul", *options, "--format", "csv")
    done = fresh("-m", "asmtune", *command, TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr
    assert run(command) == 0
    assert done.stdout == capsys.readouterr().out
    (line,) = [line for line in done.stderr.splitlines() if "TRITON_INTERPRET" in line]
    assert line.startswith("asmtune: TRITON_INTERPRET is left out: ")


INTERPRETED = """
import triton, triton.language as tl, asmtune
@triton.jit
def add(x_ptr, n, BLOCK: tl.constexpr):
    tl.store(x_ptr, n)
try:
    asmtune.prune_report(asmtune.Problem(add, {"x_ptr": 0, "n": 1}, (1,)), {"BLOCK": [32]})
except asmtune.base.errors.InputError as error:
    print(error)
"""


def test_python_says_why_an_interpreted_kernel_cannot_be_compiled(tmp_path: Path) -> None:
    """In a process with TRITON_INTERPRET=1 a report says that the variable is why."""
    (tmp_path / "program.py").write_text(INTERPRETED)
    done = fresh(str(tmp_path / "program.py"), TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("'add' is interpreted, and has no compiled code: ")
    assert "TRITON_INTERPRET" in done.stdout
