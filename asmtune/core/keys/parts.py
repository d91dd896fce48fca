"""From what `key=` was given to the parts of a key."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from asmtune.base.errors import InputError
from asmtune.base.text import did_you_mean
from asmtune.core.keys.buckets import KINDS, Bucket

KeySource = Iterable[str | Bucket | Callable[..., Any]] | Mapping[str, Callable[..., Any] | None]


@dataclass(frozen=True)
class KeyPart:
    """One value of a key.

    Attributes:
        name: what the value is stored by: `M`, `pow2(N)`, `cells(M, N)`.
        needs: parameters of the kernel, in the order in which `function` takes them.
        function: pure, takes the arguments by position; None for the argument itself.
    """

    name: str
    needs: tuple[str, ...]
    function: Callable[..., Any] | None = None


def key_parts(
    key: KeySource, arg_names: Sequence[str], kernel: str = "the kernel", *, strict: bool = True
) -> tuple[KeyPart, ...]:
    """The parts of what `key=` was given.

    Args:
        key: names, buckets and functions of arguments; or by name a function, a
            bucket of the argument of that name, or None for the argument itself.
        arg_names: the kernel's parameters.
        kernel: its name, for messages.
        strict: whether unknown and repeated names are refused; `triton.autotune` ignores them.

    Raises:
        InputError: a part names no parameter of the kernel, is no part, or stands twice.
    """
    if not isinstance(key, Iterable) or (strict and isinstance(key, str)):
        raise InputError(f"asm_autotune: key={key!r}: expected a list of names of arguments")
    if isinstance(key, Mapping):
        made = [_named_part(name, item) for name, item in key.items()]
    else:
        made = [_part(item) for item in key]
    parts: dict[str, KeyPart] = {}
    for part in made:
        unknown = [name for name in part.needs if name not in arg_names]
        if unknown and strict:
            raise InputError(_unknown(part, unknown[0], arg_names, kernel))
        if part.name in parts and strict:
            raise InputError(_repeated(part))
        if not unknown:
            parts.setdefault(part.name, part)
    return tuple(parts.values())


def _part(item: Any) -> KeyPart:
    """A part that stands in a list."""
    if isinstance(item, str):
        return KeyPart(item, (item,))
    if isinstance(item, Bucket):
        if item.argument is None:
            raise InputError(
                f"asm_autotune: key {item} names no argument: "
                f"write key=[{item}('N')] or key={{'N': {item}}}"
            )
        return KeyPart(str(item), (item.argument,), item.function)
    name = getattr(item, "__name__", type(item).__name__ if callable(item) else repr(item))
    return _function_part(name.strip("<>"), item)


def _named_part(name: Any, item: Any) -> KeyPart:
    """A part that stands in a mapping."""
    if not isinstance(name, str) or not name.isidentifier():
        raise InputError(f"asm_autotune: key {name!r}: expected a name of letters and digits")
    if item is None:
        return KeyPart(name, (name,))
    if isinstance(item, Bucket):
        if item.argument not in (None, name):
            raise InputError(
                f"asm_autotune: key {name!r} is {item}, a bucket of {item.argument}: "
                f"put {item} into a list, or name it {item.argument!r}"
            )
        return _part(item(name))
    return _function_part(name, item)


def _function_part(name: str, function: Any) -> KeyPart:
    if not callable(function):
        shown = name if name == repr(function) else f"{name} is {function!r}"
        raise InputError(
            f"asm_autotune: key {shown}: "
            "expected the name of an argument, a bucket or a function of arguments"
        )
    if name in KINDS:
        raise InputError(f"asm_autotune: key {name!r} is a bucket of asmtune's: rename yours")
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise InputError(
            f"asm_autotune: key {name}: {error}; wrap it: lambda N: {name}(N)"
        ) from error
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    odd = next((parameter for parameter in parameters if parameter.kind not in by_position), None)
    if odd is not None or not parameters:
        what = "takes nothing" if odd is None else f"takes {_as_written(odd)}"
        raise InputError(
            f"asm_autotune: key {name} {what}: expected a function of the kernel's "
            "arguments, each by its name, such as lambda M, N: M * N"
        )
    needs = tuple(parameter.name for parameter in parameters)
    return KeyPart(f"{name}({', '.join(needs)})", needs, function)


def _as_written(parameter: inspect.Parameter) -> str:
    """`*rest`, `**rest` or `N by keyword alone`."""
    if parameter.kind is parameter.VAR_POSITIONAL:
        return f"*{parameter.name}"
    if parameter.kind is parameter.VAR_KEYWORD:
        return f"**{parameter.name}"
    return f"{parameter.name} by keyword alone"


def _unknown(part: KeyPart, name: str, arg_names: Sequence[str], kernel: str) -> str:
    hint = did_you_mean(name, arg_names)
    asked = f"key {name!r}" if part.function is None else f"{name!r} of key {part.name}"
    return (
        f"asm_autotune: {asked} is no parameter of {kernel}: they are {', '.join(arg_names)}{hint}"
    )


def _repeated(part: KeyPart) -> str:
    if part.function is None or part.name.split("(")[0] in KINDS:
        return f"asm_autotune: key {part.name!r} stands twice; give it once"
    return (
        f"asm_autotune: two functions in key= would be called {part.name}: "
        "name them, key={'cells': lambda M, N: M * N, ...}"
    )
