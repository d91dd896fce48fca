"""The code against the table of layers in ARCHITECTURE.md."""

from __future__ import annotations

import ast
import functools
import graphlib
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

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


@functools.cache
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


def test_imports_point_down() -> None:
    """A module imports from its own room and from lower rows alone, in functions as well."""
    wrong = []
    for path in MODULES:
        own = room(dotted(path))
        wrong += [
            f"{dotted(path)}:{line}: {own} (row {ROWS[own]}) "
            f"imports {module} (row {ROWS[room(module)]})"
            for module, line in imports_of(path)
            if room(module) != own and not ROWS[room(module)] < ROWS[own]
        ]
    assert wrong == [], "\n".join(wrong)


def test_wings_do_not_import_each_other() -> None:
    """A wing of the workshop imports the core, and no other wing."""
    wings = {dotted(path): path for path in MODULES if room(dotted(path)) == "workshop"}

    def wing(module: str) -> str:
        return ".".join(module.split(".")[:3])

    wrong = [
        f"{name}:{line}: {module}"
        for name, path in wings.items()
        for module, line in imports_of(path)
        if room(module) == "workshop" and wing(module) != wing(name)
    ]
    assert len({wing(name) for name in wings}) > 5
    assert wrong == [], "\n".join(wrong)


def test_kernels_are_not_imported() -> None:
    """Nothing in asmtune/ imports a kernel; they are looked up by name."""
    wrong = [
        f"{dotted(path)}:{line}: {module}"
        for path in MODULES
        for module, line in imports_of(path)
        if room(module) in ("kernels", "shipped")
    ]
    assert wrong == [], "\n".join(wrong)


PUBLIC_TRITON: Final = (
    *("triton", "triton.language", "triton.testing", "triton.experimental.gluon"),
    "triton.tools.tensor_descriptor",
)
"""Documented modules of Triton; `triton` and `triton.language` with the names that they export."""

PRIVATE_NAMES: Final = {
    *("params", "used_global_vals", "pre_run_hooks", "device_caches", "cache_key", "_pack_args"),
    *("packed_metadata", "launcher_cls", "_cdata", "_version", "_base", "_schema"),
    *("configs_top_k", "_do_bench"),
}
"""Attributes of objects of Triton and PyTorch that they do not document."""

OWN_NAMES: Final = {
    *("asmtune.ir.ttir.evaluate: _base", "asmtune.runtime.patching.redirect: _base"),
    "kernels._hopper: triton._C.libtriton.ir",
}
"""Attributes of click's or asmtune's own objects that are called alike; a Gluon builtin's types."""


def is_private(dotted_name: str) -> bool:
    """Say if Triton or PyTorch does not document a dotted name."""
    parts = dotted_name.split(".")
    if parts[0] == "torch":
        return any(part.startswith("_") and not part.startswith("__") for part in parts)
    if parts[0] != "triton" or dotted_name in PUBLIC_TRITON:
        return False
    exported = set(importlib.import_module("triton").__all__) - {"runtime", "compiler", "tools"}
    inner = any(dotted_name.startswith(f"{module}.") for module in PUBLIC_TRITON[1:])
    return not inner and parts[1] not in exported | {"__version__", "__file__"}


def private_names(source: str) -> Iterator[str]:
    """Names of Triton's or PyTorch's private things that a source imports, reads or spells."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        found: list[str] = []
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            found = [ast.unparse(node)]
            if node.attr in PRIVATE_NAMES:
                yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = [node.value] if re.fullmatch(r"(triton|torch)(\.\w+)+", node.value) else []
            if node.value in PRIVATE_NAMES:
                yield node.value
        yield from filter(is_private, found)


def test_private_names_have_one_room() -> None:
    """Only `triton_api` names what Triton and PyTorch do not document; kernels speak Triton."""
    found = {
        f"{dotted(path)}: {name}"
        for path in MODULES
        if room(dotted(path)) != "triton_api"
        for name in private_names(path.read_text())
    }
    # A vendor's operators, which kernels are raced with, begin with an underscore in PyTorch.
    found |= {
        f"{dotted(path)}: {name}"
        for path in (ROOT / "kernels").rglob("*.py")
        for name in private_names(path.read_text())
        if name.startswith("triton.")
    }
    assert found >= OWN_NAMES
    assert sorted(found - OWN_NAMES) == []


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Modules that import each other in turn, the first again at the end; empty if none do."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_no_import_circles() -> None:
    """No modules import each other, nor do imports in functions and of types close a circle."""
    graph = {}
    for path in MODULES:
        name = dotted(path)
        graph[name] = {o for o, _ in imports_of(path) if exists(o) and o != name}
    assert sum(map(len, graph.values())) > 500
    assert circle(graph) == []


def test_class_names_are_unique() -> None:
    """No public class name is defined twice in asmtune/, so that a name has one meaning."""
    places = defaultdict(list)
    for path in MODULES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(dotted(path))
    assert len(places) > 200
    wrong = [f"{name}: {', '.join(rooms)}" for name, rooms in places.items() if len(rooms) > 1]
    assert wrong == [], "\n".join(wrong)
