"""Slots: how each parameter of a compiled kernel is filled from a launch's arguments.

A slot is `(kind, index, constant)`: the kind of `native/plan.c`, the index of the function's
parameter, or -1 for a constant, and the constant, or the axis of a descriptor.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from asmtune.triton_api.jit_functions import parameters
from asmtune.triton_api.launching import DESCRIPTOR, LaunchFacts

Slot = tuple[int, int, Any]

_KINDS: Final = {
    "i1": 1, "i8": 1, "i16": 2, "i32": 3, "i64": 4,
    "u1": 5, "u8": 5, "u16": 6, "u32": 7, "u64": 8, "fp32": 9, "fp64": 10,
}  # fmt: skip
"""Kinds of `native/plan.c` by Triton's names of scalar types."""
_POINTER: Final = 0
_MAP, _ADDRESS, _PADDED, _EXTENT, _WIDE_EXTENT, _STRIDE = range(11, 17)
"""Kinds of a descriptor's parts."""
_BYTES: Final = (8, 1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 128, 8, 1, 4, 8, 8)
"""Widths of the kinds."""
_SCRATCH: Final = ((_POINTER, -1, 0), (_POINTER, -1, 0))
"""Triton's global and profile scratch, the last two parameters of a kernel; null here."""

_ENTRY: Final = re.compile(r"\.entry\s+[\w$]+\s*\((.*?)\)", re.DOTALL)
_PARAMETER: Final = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?\.[a-z]+(\d+)\b[^,\[]*(?:\[(\d+)\])?"
)

_MOST_DESCRIPTORS: Final = 16  # the same number as in `native/words.c`
_ABSENT: Final = object()


def filled(
    function: Any,
    given: Mapping[str, Any],
    facts: LaunchFacts,
    values: tuple[Any, ...],
    tensors: tuple[type, ...],
    descriptors: tuple[type, ...],
) -> tuple[tuple[Slot, ...], tuple[Any, ...]] | None:
    """List how each of a kernel's parameters is filled, and the descriptors among them.

    None where Triton must fill them.

    Args:
        function: the `JITFunction`.
        given: the launch's arguments by name.
        facts: facts of the compiled kernel.
        values: values of the function's parameters that the launch does not give.
        tensors: exact types of tensors that the launcher reads.
        descriptors: exact types of descriptors that it reads.
    """
    if not facts.is_native:
        return None
    slots: list[Slot] = []
    described: list[Any] = []
    for index, param in enumerate(parameters(function)):
        type_name = facts.signature.get(param.name)
        if type_name == "constexpr":
            continue
        value = given.get(param.name, _ABSENT)
        if not isinstance(type_name, str):
            return None
        if type_name.startswith("*") and type(value) in tensors:
            slots.append((_POINTER, index, 0))
        elif type_name in _KINDS:
            slots.append((_KINDS[type_name], -1 if value is _ABSENT else index, values[index]))
        elif type_name.startswith(DESCRIPTOR) and type(value) in descriptors:
            tensor_map = facts.maps[len(described)]
            block, layout = _block_in(type_name), getattr(value, "layout", None)
            described.append((index, block, layout, tensor_map))
            mapped, rounds = tensor_map is not None, hasattr(value, "round_f32_to_tf32")
            slots += _mapped(index, len(block)) if mapped else _parts(index, len(block), rounds)
        else:
            return None
    slots.extend(_SCRATCH)
    widths = [_BYTES[kind] for kind, *_ in slots]
    native = widths == entry_widths(facts.ptx)
    fits = len(described) <= _MOST_DESCRIPTORS
    return (tuple(slots), tuple(described)) if native and fits else None


def _block_in(type_name: str) -> tuple[int, ...]:
    """Read the block that a kernel was compiled for: a grid function may change the descriptor."""
    sizes = type_name[type_name.index("[") + 1 : type_name.index("]")]
    return tuple(map(int, sizes.split(",")))


def _mapped(index: int, rank: int) -> list[Slot]:
    """List the parameters that a descriptor is for a kernel that uses the copy engine."""
    strides = [(_STRIDE, index, axis) for axis in range(rank)]
    return [(_MAP, index, 0), *((_EXTENT, index, axis) for axis in range(rank)), *strides]


def _parts(index: int, rank: int, rounds: bool) -> list[Slot]:
    """List them for a kernel without it; since Triton 3.7 one says whether values are rounded."""
    strides = [(_STRIDE, index, axis) for axis in range(rank)]
    wide = [(_WIDE_EXTENT, index, axis) for axis in range(rank)]
    flags: list[Slot] = [(_PADDED, index, 0), *([(_KINDS["i1"], -1, False)] if rounds else [])]
    extents = [(_EXTENT, index, axis) for axis in range(rank)]
    return [(_ADDRESS, index, 0), *wide, *strides, *flags, *extents, *strides]


def entry_widths(ptx: str) -> list[int] | None:
    """Read the bytes of each parameter of a kernel's entry off its PTX; None if it has none."""
    entry = _ENTRY.search(ptx)
    if entry is None:
        return None
    found = _PARAMETER.findall(entry.group(1))
    return [int(bits) // 8 * int(count or 1) for bits, count in found]
