"""The parts of a key as `key=` gives them, and their values at a launch."""

from __future__ import annotations

import functools
import inspect
import math
import numbers
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from asmtune.base.errors import USER_CODE_ERRORS, ArgumentTypeError, InputError
from asmtune.base.text import did_you_mean, shortened
from asmtune.core.dtypes import dtype_name, dtype_of
from asmtune.core.keys.buckets import KINDS, Bucket
from asmtune.triton_api.user_state import inside

KeySource = Iterable[str | Bucket | Callable[..., Any]] | Mapping[str, Callable[..., Any] | None]


@dataclass(frozen=True)
class KeyPart:
    """A named value of a key.

    Attributes:
        name: the value's name in the store: `M`, `pow2(N)`, `cells(M, N)`.
        needs: parameters of the kernel, in the order in which `function` takes them.
        function: takes the arguments by position, and is pure; None for the argument itself.
    """

    name: str
    needs: tuple[str, ...]
    function: Callable[..., Any] | None = None


def key_parts(
    key: KeySource, arg_names: Sequence[str], kernel: str = "the kernel", *, strict: bool = True
) -> tuple[KeyPart, ...]:
    """Read the parts of `key=`.

    Args:
        key: names, buckets and functions of arguments; or by name a function, a
            bucket of the argument of that name, or None for the argument itself.
        arg_names: the kernel's parameters.
        kernel: its name, for messages.
        strict: True refuses unknown and repeated names, which `triton.autotune` ignores, and
            buckets of values that are not whole numbers; else these have no bucket.

    Raises:
        InputError: a part names an unknown parameter, is invalid, or is repeated.
    """
    if not isinstance(key, Iterable) or (strict and isinstance(key, str)):
        raise ArgumentTypeError(
            f"asm_autotune: key={shortened(repr(key))}: expected a list of names of arguments, "
            "such as key=['n']"
        )
    if isinstance(key, Mapping):
        listed = [_named_part(name, item) for name, item in key.items()]
    else:
        listed = [_part(item, strict=strict) for item in key]
    parts: dict[str, KeyPart] = {}
    for part in listed:
        unknown = [name for name in part.needs if name not in arg_names]
        if unknown and strict:
            raise InputError(_unknown(part, unknown[0], arg_names, kernel))
        if part.name in parts and strict:
            raise InputError(
                f"asm_autotune: key {part.name!r} is given twice; give it once, or name functions, "
                "key={'cells': lambda M, N: M * N, ...}"
            )
        if not unknown:
            parts.setdefault(part.name, part)
    return tuple(parts.values())


def _part(item: Any, *, strict: bool = True) -> KeyPart:
    if isinstance(item, str):
        return KeyPart(item, (item,))
    if isinstance(item, Bucket):
        if item.argument is None:
            raise InputError(
                f"asm_autotune: key {item} names no argument: "
                f"write key=[{item}('N')] or key={{'N': {item}}}"
            )
        function = item.function if strict else functools.partial(_rounded, item.function)
        return KeyPart(str(item), (item.argument,), function)
    name = getattr(item, "__name__", type(item).__name__ if callable(item) else repr(item))
    return _function_part(name.strip("<>"), item)


def _rounded(function: Callable[[Any], int], value: Any) -> Any:
    """Round a value to its bucket; return one that is not a whole number as it is."""
    try:
        return function(value)
    except TypeError:
        return value


def _named_part(name: Any, item: Any) -> KeyPart:
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
        raise ArgumentTypeError(
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
    if not parameters or any(parameter.kind not in by_position for parameter in parameters):
        taken = ", ".join(parameter.name for parameter in parameters) or "nothing"
        raise InputError(
            f"asm_autotune: key {name} takes {taken}: expected a function of the kernel's "
            "arguments, each by its name, such as lambda M, N: M * N"
        )
    needs = tuple(parameter.name for parameter in parameters)
    return KeyPart(f"{name}({', '.join(needs)})", needs, function)


def _unknown(part: KeyPart, name: str, arg_names: Sequence[str], kernel: str) -> str:
    hint = did_you_mean(name, arg_names)
    where = f"key {name!r}" if part.function is None else f"{name!r} of key {part.name}"
    return (
        f"asm_autotune: {where} is no parameter of {kernel}: they are {', '.join(arg_names)}{hint}"
    )


Plain = int | float | str | bool | None

_PLAIN: Final = "a finite number, text, True, False, None or a dtype"
_USUAL: Final = (bool, str)
_WHOLE: Final = range(-(1 << 63), 1 << 64)
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


def values(
    parts: Sequence[KeyPart],
    arguments: Mapping[str, Any],
    kernel: str = "the kernel",
    *,
    defaults: Mapping[str, Any] = _NOTHING,
    strict: bool = True,
) -> dict[str, Plain]:
    """Compute the key's values by the names of its parts.

    Args:
        parts: as `key_parts` returns them.
        arguments: a launch's arguments by name.
        kernel: its name, for messages.
        defaults: the parameters' default values; an argument without value and default is None.
        strict: True refuses a value that is not plain. Otherwise, as for `triton.autotune`, a
            tensor counts as its dtype and any other hashable value as its text.

    Raises:
        InputError: a value is not plain, or a function raised; names kernel, part and value.
    """
    known = {**defaults, **arguments}
    return {part.name: _value(part, known, kernel, strict) for part in parts}


def _value(part: KeyPart, known: Mapping[str, Any], kernel: str, strict: bool) -> Plain:
    where = f"kernel {kernel}: key {part.name}"
    if part.function is None:
        value: Any = known.get(part.name)
        usual = value is None or type(value) in _USUAL or (type(value) is int and value in _WHOLE)
        return value if usual else _plain(value, where, strict)
    absent = [name for name in part.needs if name not in known]
    if absent and not strict:
        return None  # as without a bucket: heuristics may give it
    if absent:
        raise InputError(f"{where} needs argument {absent[0]}, and the launch has none")
    given = ", ".join(f"{name}={_shown(known[name])}" for name in part.needs)
    where = f"{where} at {given}"
    try:
        with inside():
            value = part.function(*(known[name] for name in part.needs))
    except (*USER_CODE_ERRORS, RuntimeError) as error:
        cause = " ".join(str(error).split())
        raise InputError(
            f"{where}: {type(error).__name__}: {cause}; "
            "make it give a plain value for every argument that is launched"
        ) from error
    return _plain(value, where, strict)


def _plain(value: Any, where: str, strict: bool) -> Plain:
    """Convert a value to one that a store can hold.

    A number of another library becomes the equal Python number: `numpy.int64(5)` is 5.
    """
    if value is None or isinstance(value, bool):
        return value
    if getattr(getattr(value, "dtype", None), "kind", "") == "b" and value.shape == ():
        return bool(value)  # NumPy's is no `bool`
    if isinstance(value, str):
        return str.__str__(value)
    if (name := dtype_name(value)) is not None:
        return name
    number = _number(value)
    if number is not None:
        return number
    return _refused(value, where) if strict else _loose(value, where)


def _number(value: Any) -> int | float | None:
    """Convert to a finite number that a store can hold; None if the value is not one."""
    if hasattr(value, "data_ptr") or getattr(value, "shape", None):
        return None  # a tensor of one element is an index too, and reading it waits for the GPU
    try:
        whole = operator.index(value)
    except TypeError:
        real = isinstance(value, numbers.Real) and math.isfinite(value)
        return float(value) if real else None
    return whole if whole in _WHOLE else None


def _refused(value: Any, where: str) -> Plain:
    advice = "give a function of it that returns one"
    if hasattr(value, "data_ptr"):
        advice = "its dtype is part of every key; take a size, such as lambda x: x.shape[0]"
    raise InputError(f"{where} is {_shown(value)}: expected {_PLAIN}; {advice}")


def _loose(value: Any, where: str) -> Plain:
    dtype = dtype_of(value)
    if dtype is not None:
        return dtype
    try:
        hash(value)
    except TypeError as error:
        raise InputError(f"{where} is {_shown(value)}: {error}; expected {_PLAIN}") from error
    return str(value)


def _shown(value: Any) -> str:
    if hasattr(value, "data_ptr"):
        return f"a tensor of {dtype_of(value)} {tuple(getattr(value, 'shape', ()))}"
    short = shortened(ascii(value))
    known = value is None or type(value) in (int, float, str, bool)
    return short if known else f"{short} ({type(value).__name__})"
