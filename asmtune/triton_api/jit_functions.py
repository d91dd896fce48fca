"""Kernels of Triton and their decorators: parameters, sources, and the globals that they read.

Nothing here imports Triton, which takes 0.3 s.
"""

from __future__ import annotations

import ast
import dis
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from types import ModuleType
from typing import Any

from asmtune.base.errors import USER_CODE_ERRORS, ProblemError


def is_kernel(value: Any) -> bool:
    """Say if a value is a kernel of Triton's, also under decorators; import no Triton.

    It has `[]` and no length, so that `list` of it never ends. A stand-in for a package that
    loads on first use is no kernel: it has every name, or raises at each.
    """
    if isinstance(value, type | ModuleType):
        return False
    try:
        return isinstance(getattr(value, "arg_names", None), list | tuple) and hasattr(value, "run")
    except (*USER_CODE_ERRORS, ImportError, RuntimeError):
        return False


def python_function(kernel: Any) -> Any:
    """Return the Python function under all decorators, Triton's own included."""
    layer = kernel
    while hasattr(layer, "fn"):
        layer = layer.fn
    return layer


def plain_name(kernel: Any) -> str:
    """Return the name of the Python function under all decorators."""
    function = python_function(kernel)
    return str(getattr(function, "__name__", function))


def jit_function(kernel: Any) -> Any:
    """Return the `JITFunction` under a kernel's decorators.

    Raises:
        ProblemError: it is not a Triton kernel.
    """
    function = kernel
    while not is_jit_function(function) and hasattr(function, "fn"):
        function = function.fn
    if not is_jit_function(function) and is_kernel(kernel):
        raise ProblemError(
            f"{plain_name(kernel)!r} is interpreted, and has no compiled code: it was decorated "
            "under TRITON_INTERPRET=1; unset it, or run `asmtune prune-report`, which leaves it out"
        )
    if not is_jit_function(function) or not is_kernel(function):
        raise ProblemError(
            f"{getattr(kernel, '__name__', kernel)!r} is not a Triton kernel: "
            "decorate it with @triton.jit"
        )
    return function


def is_gluon(kernel: Any) -> bool:
    """Return whether a kernel is written in Gluon, whose front end makes TTGIR and no TTIR."""
    test = getattr(innermost(kernel), "is_gluon", None)
    return callable(test) and bool(test())


def heuristic_rules(kernel: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield names and functions of the `@triton.heuristics` of a kernel, outermost first."""
    layer = kernel
    while not is_jit_function(layer) and hasattr(layer, "fn"):
        rules = getattr(layer, "values", None)
        if isinstance(rules, Mapping):
            yield from rules.items()
        layer = layer.fn


def is_jit_function(layer: Any) -> bool:
    """Return whether this is the kernel that Triton compiles: no decorator, not interpreted."""
    return hasattr(layer, "params")


def innermost(kernel: Any) -> Any:
    """Return the kernel under its decorators: a `JITFunction`, or what the interpreter runs."""
    layer = kernel
    while not is_jit_function(layer) and hasattr(layer, "fn") and hasattr(layer.fn, "run"):
        layer = layer.fn
    return layer


def parameters(kernel: Any) -> tuple[Any, ...]:
    """Return a kernel's parameters in order: `name`, `is_constexpr`, `has_default`, `default`."""
    return tuple(jit_function(kernel).params)


def defaults(kernel: Any) -> dict[str, Any]:
    """Return the values of a kernel's parameters that a launch may leave out."""
    return {p.name: p.default for p in parameters(kernel) if p.has_default}


def constexprs(kernel: Any) -> frozenset[str]:
    """Return the names of a kernel's `tl.constexpr` parameters."""
    return frozenset(p.name for p in parameters(kernel) if p.is_constexpr)


def source_text(function: Any) -> str:
    """Return the source of a `JITFunction` as Triton compiles it, without decorators."""
    return str(function.src)


def is_device_function(value: Any) -> bool:
    """Return whether a value that a kernel reads is a function that it may call."""
    return hasattr(value, "fn") and hasattr(value, "src")


def is_source_of_kernel(function: Any) -> bool:
    """Return whether a Python function is what `triton.jit` would take, and not what launches.

    It uses Triton's language, or calls kernels as functions, and has no `kernel[grid](...)`.
    """
    scope, names = function.__globals__, function.__code__.co_names
    used = {name: scope[name] for name in names if name in scope}
    speaks = any(map(_is_language, used.values())) or {"triton", "language"} <= {*names}
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError):
        return speaks
    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    own = {one.id for one in called if isinstance(one, ast.Name)}
    speaks = speaks or any(is_kernel(used[name]) for name in own & used.keys())
    return speaks and not any(isinstance(one, ast.Subscript) for one in called)


def _is_language(value: Any) -> bool:
    is_module = isinstance(value, ModuleType)
    name = value.__name__ if is_module else getattr(value, "__module__", None)
    return str(name).startswith(("triton.language", "triton.experimental.gluon"))


def variables_seen(function: Any) -> dict[str, Any]:
    """Return the globals that a `JITFunction` sees, and what it closes over, by name."""
    return {**function.__globals__, **inspect.getclosurevars(function.fn).nonlocals}


def globals_read(function: Any) -> list[tuple[dict[str, Any], str]]:
    """Return the globals that Triton compares at each launch: the dicts, and names in them."""
    return [(scope, name) for (name, _), (_, scope) in function.used_global_vals.items()]


@lru_cache(maxsize=256)
def products_and_loops(function: Any) -> tuple[bool, bool]:
    """Return whether a kernel, or a function it calls, multiplies tiles, and whether it loops.

    The bytecode tells, in a fraction of the time that the source takes.
    """
    multiplies, loops = False, False
    left, met = [function], set[int]()
    while left:
        one = left.pop()
        if id(one) in met:
            continue
        met.add(id(one))
        code = python_function(one).__code__
        names = {*code.co_names, *code.co_freevars}
        seen = variables_seen(one) if code.co_freevars else one.__globals__
        multiplies |= not names.isdisjoint(("dot", "dot_scaled"))
        steps = {dis.opname[number] for number in {*code.co_code[::2]}}
        loops |= any(name == "FOR_ITER" or "BACKWARD" in name for name in steps)
        values = [seen[name] for name in names if name in seen]
        own = [m for m in values if isinstance(m, ModuleType) and m.__name__ != "triton.language"]
        values += [getattr(module, name, None) for module in own for name in names]
        left += filter(is_device_function, values)
    return multiplies, loops
