"""Inputs that find wrong kernels: special values, memory layouts, and sizes that blocks miss."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from asmtune.base.errors import InputError

Inputs = Mapping[str, Any]
TensorChange = Callable[[torch.Tensor], torch.Tensor]


def odd_shapes(*names: str) -> tuple[dict[str, int], ...]:
    """Return shapes for cases: odd, of one element, of whole blocks, one more, and longer.

    The last dimension is the largest, and those before the last two are small: a kernel over rows
    has some tens of programs, which Triton's interpreter runs in a second.

    Raises:
        InputError: there is no name.
    """
    if not names:
        raise InputError('odd_shapes: name the sizes, as in odd_shapes("M", "N")')
    last, rows, others = (33, 1, 128, 129, 1000), (17, 1, 8, 5, 3), (2, 1, 3, 2, 1)
    columns = [others] * (len(names) - 2) + [rows, last][-len(names) :]
    return tuple(dict(zip(names, sizes, strict=True)) for sizes in zip(*columns, strict=True))


def converted(value: Any, change: TensorChange) -> Any:
    """Change each tensor of a value, also inside of mappings, tuples, lists and descriptors."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {name: converted(part, change) for name, part in value.items()}
    if hasattr(value, "_make"):  # a named tuple
        return value._make(converted(part, change) for part in value)
    if isinstance(value, tuple | list):
        return type(value)(converted(part, change) for part in value)
    if isinstance(getattr(value, "base", None), torch.Tensor):
        other = copy.copy(value)
        other.base = change(value.base)
        return other
    return value


def widened(value: Any) -> Any:
    """Return copies of tensors, wherever they are: in float64 if they are of floating point."""
    double = torch.float64
    return converted(
        value, lambda x: x.detach().to(double if x.is_floating_point() else x.dtype, copy=True)
    )


def copied(x: torch.Tensor) -> torch.Tensor:
    """Copy a tensor with all of its memory: place and strides stay, gaps and overlaps too."""
    memory = x.detach().new_empty(0).set_(x.untyped_storage()).clone()
    return memory.as_strided(x.shape, x.stride(), x.storage_offset())


def special_values(dtype: torch.dtype, most: float) -> dict[str, TensorChange]:
    """Return changes of a float64 tensor by name: zeros, huge, tiny, offset, NaN and infinities.

    Args:
        dtype: of the kernel's input; its limits say what is huge and tiny.
        most: bound of huge values, for kernels whose sums leave their range before.
    """
    limits = torch.finfo(dtype)
    huge = min(limits.max / 8, most)
    return {
        "zeros": torch.zeros_like,
        "huge": lambda x: x * huge / 4,
        "tiny": lambda x: torch.copysign(1 + x.abs(), x) * limits.tiny * 4,
        "denormals": lambda x: torch.copysign(1 + x.abs(), x) * limits.tiny / 8,
        "offset": lambda x: x + 100,
        "nan": lambda x: _sprinkled(x, float("nan")),
        "inf": lambda x: _sprinkled(x, float("inf")),
        "minus inf": lambda x: _sprinkled(x, float("-inf")),
    }


SHOW_MASKS: Final = ("huge", "nan", "minus inf")
"""Values that show a wrong mask, so that they are worth another config when time is short."""


def _sprinkled(x: torch.Tensor, value: float) -> torch.Tensor:
    """Put one value at the first element and at every 37th after the second."""
    x = x.contiguous()
    x.view(-1)[:1] = value
    x.view(-1)[2::37] = value
    return x


def _spaced(x: torch.Tensor) -> torch.Tensor:
    wide = torch.empty((*x.shape[:-1], 2 * x.shape[-1]), dtype=x.dtype, device=x.device)
    return wide[..., ::2].copy_(x)


def _inner(x: torch.Tensor) -> torch.Tensor:
    wide = torch.empty((*x.shape[:-1], x.shape[-1] + 3), dtype=x.dtype, device=x.device)
    return wide[..., 1:-2].copy_(x)


def one_element_off(x: torch.Tensor) -> torch.Tensor:
    """Copy a tensor without gaps to one element behind an aligned address."""
    flat = torch.empty(x.numel() + 1, dtype=x.dtype, device=x.device)
    return flat[1:].view(x.shape).copy_(x)


LAYOUTS: Final[dict[str, TensorChange]] = {
    "every other element": _spaced,
    "inner block": _inner,
    "one element off": one_element_off,
    "transposed": lambda x: x.mT.contiguous().mT,
    "every other row": lambda x: x.repeat_interleave(2, 0)[::2],
    "one row repeated": lambda x: x[:1].expand(x.shape),
}
"""Changes of a tensor that keep its shape, and not its place or strides in memory."""

FLAT: Final = ("every other element", "inner block", "one element off")
"""Layouts that a vector can have."""
