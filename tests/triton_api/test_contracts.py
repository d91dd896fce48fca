"""Each function of the room has a test here."""

from __future__ import annotations

import ast
from pathlib import Path

HERE = Path(__file__).parent


def test_each_function_has_a_contract() -> None:
    """The tests of this folder name every public function of `triton_api`."""
    room = HERE.parent.parent / "asmtune" / "triton_api"
    names = {
        node.name
        for path in room.glob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    }
    tests = "".join(path.read_text() for path in HERE.glob("*.py"))
    assert len(names) > 50
    assert sorted(name for name in names if name not in tests) == []
