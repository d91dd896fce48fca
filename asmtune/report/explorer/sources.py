"""Pieces of Python source that code comes from: the functions that its lines are in."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Any

MOST_LINES = 1500
"""Of one function; what is longer is cut off, since no kernel is."""


def pieces(path: str, number: int, lines: Iterable[int]) -> list[dict[str, Any]]:
    """The functions of a file that hold any of some lines: `{"file", "title", "first", "text"}`.

    Cells of notebooks are found as well, as long as their kernel lives. Nothing, where the
    file is gone or is no Python.

    Args:
        path: of the file, as the debug information has it.
        number: of the file in the page.
        lines: that code comes from, from 1.
    """
    text = linecache.getlines(path)
    name = PurePath(path).name
    wanted = set(lines)
    return [
        {
            "file": number,
            "title": f"{name}: {function}",
            "first": first,
            "text": "".join(text[first - 1 : min(last, first + MOST_LINES)]).rstrip("\n"),
        }
        for function, first, last in _functions("".join(text))
        if any(first <= line <= last for line in wanted)
    ]


def _functions(text: str) -> Iterator[tuple[str, int, int]]:
    """Outermost functions, and methods: name, first line with its decorators, last line."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    open_nodes: list[ast.AST] = [tree]
    while open_nodes:
        for node in ast.iter_child_nodes(open_nodes.pop(0)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                yield node.name, first, node.end_lineno or node.lineno
            elif isinstance(node, ast.stmt):
                open_nodes.append(node)
