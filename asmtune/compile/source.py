"""The identity of a kernel's source: the text that its binary depends on.

Triton's own cache key contains the line number, comments and docstrings too: with it, a comment
added above a kernel would make every tuned config stale.
"""

from __future__ import annotations

import ast
import inspect
from functools import lru_cache
from types import ModuleType
from typing import Any, Final

from asmtune.base.fingerprint import digest
from asmtune.triton_api.jit_functions import (
    is_device_function,
    jit_function,
    source_text,
    variables_seen,
)

_MOST_SOURCES: Final = 256
"""Sources whose text and nodes are kept: a tuning asks for them several times, each 6 to 16 ms for
a shipped kernel."""

_PLAIN = (bool, int, float, str, type(None))
_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def source_digest(kernel: Any) -> str:
    """Return a digest of a kernel's source, of what it calls, and of the globals it reads."""
    parts: dict[str, str] = {}
    _collect(jit_function(kernel), parts, {})
    return digest(*(f"{name}\0{text}" for name, text in sorted(parts.items())))


def other_values(kernel: Any) -> str:
    """Return a text of the globals that the digest leaves out, such as types of Triton's."""
    others: dict[str, str] = {}
    _collect(jit_function(kernel), {}, others)
    return "\0".join(f"{name}={text}" for name, text in sorted(others.items()))


def _collect(function: Any, parts: dict[str, str], others: dict[str, str]) -> None:
    name = f"{function.__module__}.{function.__qualname__}"
    if name in parts:
        return
    parts[name] = text_of(source_text(function))
    for value_name, value in _names_used(parts[name], variables_seen(function)):
        if is_device_function(value):
            _collect(value, parts, others)
        elif isinstance(value, _PLAIN) or type(value).__name__ == "constexpr":
            parts[f"{name}:{value_name}"] = repr(value)
        else:
            others[f"{name}:{value_name}"] = repr(value)


@lru_cache(maxsize=_MOST_SOURCES)
def text_of(source: str) -> str:
    """Return a source without comments, docstrings and layout: what a kernel computes.

    The text is the same with every version of Python. Python 3.11 and 3.12 write the quotes inside
    an f-string differently: a config tuned with one would not be found with the other.
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or ([] if isinstance(node, ast.Module) else [ast.Pass()])
    return ast.unparse(ast.fix_missing_locations(_PlainStrings().visit(tree)))


class _PlainStrings(ast.NodeTransformer):
    """Writes an f-string as a tuple of its texts and values."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        self.generic_visit(node)
        # Python 3.12.1 ends some formats with an empty text.
        parts = [part for part in node.values if getattr(part, "value", None) != ""]
        return ast.Tuple(parts, ast.Load())

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        self.generic_visit(node)
        kind = ast.Constant(node.conversion)
        return ast.Tuple([node.value, kind, node.format_spec or ast.Constant(None)], ast.Load())


def _names_used(text: str, scope: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the global names of a source, and what it takes from modules, with their values."""
    nodes, local = _nodes(text)
    # A parameter or local variable hides the global of its name.
    scope = {name: value for name, value in scope.items() if name not in local}
    used: dict[str, Any] = {}
    for node in nodes:
        if isinstance(node, ast.Name) and node.id in scope:
            used[node.id] = scope[node.id]
        elif isinstance(node, ast.Attribute):
            owner = _module_of(node.value, scope)
            # Triton's own library changes with its version, which is stored beside.
            if owner is not None and owner.__name__.partition(".")[0] != "triton":
                used[ast.unparse(node)] = getattr(owner, node.attr, None)
    return list(used.items())


@lru_cache(maxsize=_MOST_SOURCES)
def _nodes(text: str) -> tuple[tuple[ast.AST, ...], frozenset[str]]:
    """Return the names and attributes in a source, and the parameters and local variables."""
    nodes = list(ast.walk(ast.parse(text)))
    parameters = {node.arg for node in nodes if isinstance(node, ast.arg)}
    stored = (n for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    read = tuple(node for node in nodes if isinstance(node, ast.Name | ast.Attribute))
    return read, frozenset(parameters | {node.id for node in stored})


def _module_of(node: ast.AST, scope: dict[str, Any]) -> ModuleType | None:
    """Return the module that an expression such as `package.module` names, or None."""
    owner: Any = None
    if isinstance(node, ast.Name):
        owner = scope.get(node.id)
    elif isinstance(node, ast.Attribute):
        owner = getattr(_module_of(node.value, scope), node.attr, None)
    return owner if inspect.ismodule(owner) else None
