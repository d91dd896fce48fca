"""What README's `make` commands would do: `make setup`, `make demo`, `make test`, `make docs`.

Continuous integration runs `make test` itself (.ci/run), which begins with `make setup`.
"""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from asmtune.cli.app import run
from website.blocks import ROOT

FEW = ("BLOCK_M=64", "BLOCK_N=128", "BLOCK_K=64", "num_warps=4", "num_stages=3,4")


def recipe(target: str) -> list[str]:
    """The commands of a target, as make would run them."""
    command = ["make", "--dry-run", "--always-make", target]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_make_demo(capfd: pytest.CaptureFixture[str]) -> None:
    """What `make demo` runs, on fewer configs, gives its report."""
    (line,) = (line for line in recipe("demo") if "prune-report" in line)
    program, *words = shlex.split(line)
    assert Path(program).name == "asmtune"
    assert run([*words, *(word for axis in FEW for word in ("--axis", axis))]) == 0
    printed = capfd.readouterr().out
    assert "tiled_matmul M=4096 N=4096 K=4096 fp16" in printed
    assert "kept" in printed


def test_the_demo_installs_what_a_user_needs() -> None:
    """`make demo` leaves out the development dependencies, `make setup` has them on top."""
    demo, setup = "\n".join(recipe("demo")), "\n".join(recipe("setup"))
    assert "--editable ." in demo
    assert "[dev]" not in demo
    assert "'.[dev]'" in setup
    assert all("--constraint constraints.txt" in text for text in (demo, setup))


def test_make_test_and_docs() -> None:
    """`make test` has lint, types and tests after the setup, and `make docs` a strict build."""
    test, docs = "\n".join(recipe("test")), "\n".join(recipe("docs"))
    assert all(word in test for word in ("pip install", "ruff check", "mypy", "-m pytest"))
    assert "mkdocs build --strict" in docs
    assert "make test" in (ROOT / ".ci" / "run").read_text()
