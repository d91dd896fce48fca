"""What holds for every file of the repository."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("asmtune", "kernels", "cache")
FILES = sorted(
    path
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
)
MODULES = [path for path in FILES if path.suffix == ".py"]
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))

# A folder of somebody's machine, as opposed to one that every Linux has.
MACHINE_PATH = re.compile(r"(?<![\w.])/(home|root|work|Users|mnt|scratch|tmp|data)/[\w.]")
MOST_LINES = 400


def short(path: Path) -> str:
    """A path as the repository knows it."""
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", FILES, ids=short)
def test_no_machine_paths(path: Path) -> None:
    """No file of the package holds a path of the machine it was written on."""
    assert MACHINE_PATH.findall(path.read_text(encoding="utf-8", errors="replace")) == []


@pytest.mark.parametrize("path", MODULES, ids=short)
def test_modules_say_what_they_are(path: Path) -> None:
    """Every module begins with a docstring that is a sentence."""
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    assert docstring
    assert docstring.split("\n\n")[0].endswith((".", "?", ":"))


@pytest.mark.parametrize("path", MODULES, ids=short)
def test_modules_are_short(path: Path) -> None:
    """No module has more than 400 lines."""
    assert len(path.read_text().splitlines()) <= MOST_LINES


def test_one_boundary_catches_everything() -> None:
    """At most one place in the package may catch any exception."""
    places = [short(path) for path in MODULES if "BLE001" in path.read_text()]
    assert len(places) <= 1
    assert all((ROOT / place).read_text().count("BLE001") == 1 for place in places)


@pytest.mark.parametrize("path", TESTS, ids=short)
def test_tests_say_what_they_hold(path: Path) -> None:
    """Every test function has a docstring that opens with one sentence, on its own."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    wrong = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, functions) and node.name.startswith("test_"):
            opening = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
            if not opening.endswith(".") or re.search(r"[.!?] [A-Z]", opening):
                wrong.append(f"{node.name}: {opening!r}")
    assert wrong == []


def test_every_package_is_installed() -> None:
    """A folder of modules that the project file does not list would be missing in a wheel."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {path.parent for path in (ROOT / "asmtune").rglob("__init__.py")}
    found = {".".join(folder.relative_to(ROOT).parts) for folder in folders}
    assert found - set(listed) == set()


def test_checks_see_something() -> None:
    """The walks above find files: an empty list would pass every check."""
    assert len(MODULES) > 50
    assert len(TESTS) > 10
    assert MACHINE_PATH.search('cache = "/home/someone/x"')
    assert not MACHINE_PATH.search("/proc/driver/nvidia and asmtune/work/x")
