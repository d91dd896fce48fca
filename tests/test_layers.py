"""The code against the table of layers in ARCHITECTURE.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "asmtune"
MODULES = sorted(PACKAGE.rglob("*.py"))


def table() -> dict[str, int]:
    """The row of every room, as ARCHITECTURE.md has it."""
    text = (ROOT / "ARCHITECTURE.md").read_text().split("## Layers")[1].split("\n## ")[0]
    rows: dict[str, int] = {}
    for number, rooms in re.findall(r"^\| *(\d+) *\| *(.*?) *\|", text, re.MULTILINE):
        for room in re.findall(r"`(\w+)`", rooms):
            assert room not in rows, f"{room} stands in two rows"
            rows[room] = int(number)
    return rows


ROWS = table()


def dotted(path: Path) -> str:
    """`asmtune.store.codec` of its path."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room(module: str) -> str:
    """The room that a module of asmtune lies in."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def exists(module: str) -> bool:
    """Say if a dotted name is a module of asmtune."""
    path = ROOT.joinpath(*module.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def imported(tree: ast.AST, module: str, is_package: bool) -> Iterator[tuple[str, int]]:
    """Modules of asmtune that a tree imports, anywhere in it, with the line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "asmtune":
                    yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                up = node.level - (1 if is_package else 0)
                base = ".".join([*parts[: len(parts) - up], *filter(None, [node.module])])
            if base.split(".")[0] == "asmtune":
                for alias in node.names:
                    inner = f"{base}.{alias.name}"
                    yield (inner if exists(inner) or base == "asmtune" else base), node.lineno


def imports_of(path: Path) -> list[tuple[str, int]]:
    """Modules of asmtune that a file imports."""
    return list(imported(ast.parse(path.read_text()), dotted(path), path.stem == "__init__"))


def test_every_module_has_a_room() -> None:
    """Every module and package of asmtune/ stands in the table."""
    found = {
        "__init__" if path == PACKAGE / "__init__.py" else room(dotted(path)) for path in MODULES
    }
    assert found - set(ROWS) == set()


def test_every_room_exists() -> None:
    """Every room of the table is a module or a package."""
    assert len(set(ROWS.values())) >= 8
    missing = [name for name in ROWS if name != "__init__" and not exists(f"asmtune.{name}")]
    assert missing == []


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_imports_point_down(path: Path) -> None:
    """A module imports from its own room and from lower rows alone, in functions as well."""
    own = room(dotted(path))
    wrong = [
        f"line {line}: {own} (row {ROWS[own]}) imports {module} (row {ROWS[room(module)]})"
        for module, line in imports_of(path)
        if room(module) != own and not ROWS[room(module)] < ROWS[own]
    ]
    assert wrong == []


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_kernels_are_not_imported(path: Path) -> None:
    """Nothing in asmtune/ imports a kernel; they are looked up by name."""
    assert [
        module for module, _ in imports_of(path) if room(module) in ("kernels", "shipped")
    ] == []


@pytest.mark.parametrize(
    ("source", "module", "is_package", "expected"),
    [
        ("import asmtune.store.codec", "asmtune.tuning", False, ["asmtune.store.codec"]),
        ("import os, asmtune.core.space as s", "asmtune.tuning", False, ["asmtune.core.space"]),
        (
            "from asmtune import Config, runtime",
            "asmtune.tuning",
            False,
            ["asmtune.Config", "asmtune.runtime"],
        ),
        (
            "from asmtune.store import Store, codec",
            "asmtune.tuning",
            False,
            ["asmtune.store", "asmtune.store.codec"],
        ),
        ("from . import core", "asmtune.tuning", False, ["asmtune.core"]),
        ("from .core import Space", "asmtune.tuning", False, ["asmtune.core"]),
        ("from ..core import Space", "asmtune.store.codec", False, ["asmtune.core"]),
        ("from .codec import x", "asmtune.store", True, ["asmtune.store.codec"]),
        ("from ..tuning import x", "asmtune.store", True, ["asmtune.tuning"]),
        (
            "def f():\n    from asmtune.tuning import x",
            "asmtune.core.config",
            False,
            ["asmtune.tuning"],
        ),
        ("if x:\n    import asmtune.tuning", "asmtune.core.config", False, ["asmtune.tuning"]),
        ("import triton\nfrom torch import cuda", "asmtune.core.config", False, []),
    ],
)
def test_every_form_of_import_is_seen(
    source: str, module: str, is_package: bool, expected: list[str]
) -> None:
    """Plain, aliased, relative, nested and type-only imports all count."""
    assert [name for name, _ in imported(ast.parse(source), module, is_package)] == expected
