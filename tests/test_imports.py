"""What importing loads, each in a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import asmtune

HEAVY = ("torch", "triton", "sklearn", "rich")


def fresh(code: str) -> str:
    """Run a new interpreter; return its output."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded_by(statement: str) -> set[str]:
    """Top-level packages that are loaded after a statement."""
    code = (
        f"{statement}; import json, sys; print(json.dumps([m.split('.')[0] for m in sys.modules]))"
    )
    return set(json.loads(fresh(code)))


def test_import_loads_nothing_heavy() -> None:
    """`import asmtune` leaves torch, triton, scikit-learn and rich alone, and numpy with them."""
    assert loaded_by("import asmtune").isdisjoint((*HEAVY, "numpy", "sqlalchemy"))


def test_names_load_no_compiler() -> None:
    """A public name on its own loads neither torch nor triton; those come with a launch."""
    names = "Config, Space, Problem, load_target, asm_autotune, between, multiple, pow2"
    assert loaded_by(f"from asmtune import {names}").isdisjoint(HEAVY)


def test_command_line_loads_no_compiler() -> None:
    """The command line's module, and its application, load neither torch, triton nor sklearn."""
    assert loaded_by("import asmtune.cli").isdisjoint((*HEAVY, "typer"))
    assert loaded_by("from asmtune.cli.app import app").isdisjoint(("torch", "triton", "sklearn"))


def test_commands_load_their_own() -> None:
    """A command loads no other's modules; `asmtune run` leaves Triton to the program."""
    assert loaded_by("import asmtune.cli.prune_report").isdisjoint(("torch", "sqlalchemy"))
    command = "from asmtune.cli.app import run; run(['run', 'program.py'])"
    assert loaded_by(command).isdisjoint(("torch", "triton", "sqlalchemy", "sklearn"))


@pytest.mark.parametrize("command", ["prune-report", "explain", "roofline"])
def test_bad_arguments_load_no_compiler(command: str) -> None:
    """Wrong arguments are refused before PyTorch and Triton are imported."""
    here = f"{Path(__file__).parent / 'sample_kernels.py'}:scale"
    mistakes = [
        ["nonsense.py:f"], ["nonsense.py"], ["nonsense:f"], ["nonsens"], [here, "--target", "H0"],
        [here, "--axis", "BLOCK"], [here, "--axis", "num_warps=x"], [here, "--arg", "x"],
        [here, "--arg", "x="], ["softmax", "--arg", "x=3"], ["softmax", "--shape", "M"],
        ["softmax", "--dtype", "fp17"], [here, "--scorer", "rooflin"], [here, "--nothing"],
    ]  # fmt: skip
    code = (
        "import sys; from asmtune.cli.app import run; "
        f"assert all(run([{command!r}, *m]) == 2 for m in {mistakes!r}); "
        "print(*({'torch', 'triton'} & {*sys.modules}))"
    )
    assert fresh(code).split() == []


def test_public_names_resolve() -> None:
    """Every public name is what its home defines, and stays once loaded."""
    assert asmtune.__all__ == sorted(asmtune.__all__)
    assert set(asmtune.__all__) == set(asmtune._HOMES) <= set(dir(asmtune))
    for name in asmtune.__all__:
        value = getattr(asmtune, name)
        assert value.__module__.startswith(asmtune._HOMES[name])
        assert value.__name__.rpartition(".")[2] == name
        assert vars(asmtune)[name] is value


def test_unknown_public_name() -> None:
    """A name that is not there is an AttributeError that shows it."""
    with pytest.raises(AttributeError, match="module 'asmtune' has no attribute 'Spacee'"):
        _ = asmtune.Spacee


def test_package_is_typed() -> None:
    """The marker that lets type checkers read the package stands in it."""
    assert Path(asmtune.__file__).with_name("py.typed").is_file()
