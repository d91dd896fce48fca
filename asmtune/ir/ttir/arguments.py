"""Bind a caller's arguments to the parameters that are left in the text.

The front end drops constants: `tl.constexpr` parameters, and numbers that are 1. It splits tensor
descriptors and tuples into their parts. If the source gives a parameter a second name (`ptr =
x_ptr`), the text has that name around the first: `"ptr"("x_ptr"(#loc))`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from asmtune.ir.ttir.mlir_types import parse_type
from asmtune.ir.ttir.parser import Function, Module
from asmtune.ir.ttir.scalars import Unknown, Value

# Without debug information a name stands alone: `loc("n")` where it was `loc("n"(#loc))`.
_NAMED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"(?:\((.*)\))?').fullmatch
_NUMBERED: Final = re.compile(r"arg\d+").fullmatch


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument of the kernel as the text has it.

    Attributes:
        name: as in the source; parts of descriptors and tuples as `a.shape.0`, `t.1`; ""
            if the text does not tell it.
        is_memory: whether it is a pointer or descriptor.
        value: its number, or why it is unknown.
        size_bytes: memory behind it, or None.
    """

    name: str
    is_memory: bool
    value: Value
    size_bytes: int | None


def bind(
    module: Module, arguments: Mapping[str, Any], tensor_bytes: Mapping[str, int]
) -> list[Parameter]:
    """Match the caller's arguments with the parameters in the text.

    `arguments` and `tensor_bytes` are as in `asmtune.ir.ttir.analysis.LaunchArguments`.
    """
    kernel = module.kernel
    names = _number_parts(kernel, _read_names(module, kernel))
    parameters = []
    for argument, name in zip(kernel.arguments, names, strict=True):
        memory = parse_type(argument.type).addresses
        value = Unknown("an address") if memory else _value(name, argument.type, arguments)
        parameters.append(Parameter(name, memory, value, tensor_bytes.get(name)))
    return parameters


def _read_names(module: Module, kernel: Function) -> list[str]:
    if not any(argument.location for argument in kernel.arguments):
        # The parameters' own names, or `%arg0` where the compiler keeps no names.
        names = [argument.value.lstrip("%") for argument in kernel.arguments]
        return ["" if _NUMBERED(name) else name for name in names]
    return [_read_name(module, argument.location) for argument in kernel.arguments]


def _read_name(module: Module, location: str) -> str:
    """Return the innermost of a location's names: later ones are other variables of that value."""
    name = ""
    for _ in range(16):
        match = _NAMED(module.locations.get(location, location))
        if match is None:
            break
        name, location = match[1], match[2] or ""
    return name


def _descriptor_parts(kernel: Function, place: int) -> int:
    """Return the number of arguments after a host descriptor that are its shape and strides."""
    kind = parse_type(kernel.arguments[place].type)
    rank = len(kind.shape)
    following = kernel.arguments[place + 1 : place + 1 + 2 * rank]
    expected = ["i32"] * rank + ["i64"] * rank
    fits = kind.role == "descriptor" and [a.type for a in following] == expected
    return 2 * rank if fits else 0


def _may_be_constant(value: Any) -> bool:
    return value is None or isinstance(value, bool | str) or (isinstance(value, int) and value == 1)


def _number_parts(kernel: Function, names: list[str]) -> list[str]:
    """Tell arguments of the same name apart: they are parts of a descriptor or a tuple."""
    numbered = list(names)
    place = 0
    while place < len(names):
        parts = _descriptor_parts(kernel, place)
        if parts:
            rank = parts // 2
            for part in range(parts):
                kind = "shape" if part < rank else "stride"
                numbered[place + 1 + part] = f"{names[place]}.{kind}.{part % rank}"
            place += 1 + parts
            continue
        same = place
        while same < len(names) and names[place] and names[same] == names[place]:
            same += 1
        if same - place > 1:
            numbered[place:same] = [f"{names[place]}.{part}" for part in range(same - place)]
        place = max(same, place + 1)
    return numbered


def _value(name: str, kind: str, arguments: Mapping[str, Any]) -> Value:
    value = arguments[name] if name in arguments else _part(name, arguments)
    if isinstance(value, tuple | list):
        left = [part for part in value if not _may_be_constant(part)]
        value = left[0] if len(left) == 1 else None
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float):
        return float(value) if parse_type(kind).is_float else int(value)
    return Unknown(f"argument {name} was given no number" if name else "an unnamed argument")


def _part(name: str, arguments: Mapping[str, Any]) -> Any:
    """Return the part of a descriptor or tuple that a name such as `a.shape.0` means."""
    base, *path = name.split(".")
    value = arguments.get(base)
    if isinstance(value, tuple | list) and path and not path[0].isdigit():
        return None
    for part in path:
        if not part.isdigit():
            value = getattr(value, "strides" if part == "stride" else part, None)
            continue
        items: Any = value if hasattr(value, "__getitem__") else ()
        value = items[int(part)] if int(part) < len(items) else None
    return value
