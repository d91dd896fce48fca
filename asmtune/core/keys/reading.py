"""The values of a key at a launch, and what a stored one stands for."""

from __future__ import annotations

import math
import numbers
import operator
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from asmtune.base.errors import FOREIGN, InputError
from asmtune.base.text import shortened
from asmtune.core.dtypes import dtype_name, dtype_of
from asmtune.core.keys.buckets import KINDS, bucket_of
from asmtune.core.keys.parts import KeyPart

Plain = int | float | str | bool | None

_PLAIN: Final = "a finite number, text, True, False, None or a dtype"
_FUNCTION: Final = re.compile(r"(\w+)\(([^\W\d]\w*(?:, [^\W\d]\w*)*)\)")
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
    """The key's values by the names of its parts.

    Args:
        parts: of `key_parts`.
        arguments: of a launch, by name.
        kernel: its name, for messages.
        defaults: of the kernel's parameters, for arguments not given; one without is None.
        strict: whether a value that is not plain is refused; otherwise a tensor counts by
            its dtype, and what else has a hash by its text, as a key of `triton.autotune` may.

    Raises:
        InputError: a value is not plain, or a function raised; names kernel, part and value.
    """
    known = {**defaults, **arguments}
    return {part.name: _value(part, known, kernel, strict) for part in parts}


def covers(name: str, value: Any) -> str | None:
    """What a stored value of a key stands for, in words: `N 2049..4096` of `pow2(N)` at 4096.

    None where it stands for itself, or is none that the part gives.
    """
    bucket = bucket_of(name)
    if bucket is None:
        found = _FUNCTION.fullmatch(name)
        if found is None or found[1] in KINDS:
            return None
        return f"{found[2]} with {found[1]} = {value}"
    span = bucket.span(value) if type(value) is int else None
    if span is None:
        return None
    low, high = span
    if low is None:
        return f"{bucket.argument} {high} or less"
    if high is None:
        return f"{bucket.argument} {low} or more"
    return f"{bucket.argument} {low}..{high}" if low < high else f"{bucket.argument} {high}"


def _value(part: KeyPart, known: Mapping[str, Any], kernel: str, strict: bool) -> Plain:
    where = f"kernel {kernel}: key {part.name}"
    if part.function is None:
        made: Any = known.get(part.name)
        usual = made is None or type(made) in _USUAL or (type(made) is int and made in _WHOLE)
        return made if usual else _plain(made, where, strict)
    absent = [name for name in part.needs if name not in known]
    if absent:
        raise InputError(f"{where} needs argument {absent[0]}, and the launch has none")
    given = ", ".join(f"{name}={_shown(known[name])}" for name in part.needs)
    where = f"{where} at {given}"
    try:
        made = part.function(*(known[name] for name in part.needs))
    except (*FOREIGN, RuntimeError) as error:
        said = " ".join(str(error).split())
        raise InputError(
            f"{where}: {type(error).__name__}: {said}; "
            "make it give a plain value for every argument that is launched"
        ) from error
    return _plain(made, where, strict)


def _plain(value: Any, where: str, strict: bool) -> Plain:
    """A value as a store can keep it.

    A number of another library's is taken by what it equals: `numpy.int64(5)` is 5.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if (name := dtype_name(value)) is not None:
        return name
    number = _number(value)
    if number is not None:
        return number
    return _refused(value, where) if strict else _loose(value, where)


def _number(value: Any) -> int | float | None:
    """A finite number that a store can hold; None for what is none."""
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
    """A value in one short line, with its type; of a tensor no element is read."""
    if hasattr(value, "data_ptr"):
        return f"a tensor of {dtype_of(value)} {tuple(getattr(value, 'shape', ()))}"
    short = shortened(ascii(value))
    known = value is None or type(value) in (int, float, str, bool)
    return short if known else f"{short} ({type(value).__name__})"
