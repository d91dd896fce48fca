"""Values of kernels that `gluon_machine` runs: scalars, tiles, pointers and descriptors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from triton.experimental.gluon import language as gl


class Int(int):
    """A scalar of a kernel."""

    def to(self, _: Any) -> Int:
        """Return itself: Python's have no width."""
        return self


def _scalar(name: str) -> Callable[..., Any]:
    plain = getattr(int, name)

    def operate(self: Int, other: Any) -> Any:
        result = plain(self, other)
        return Int(result) if type(result) is int else result

    return operate


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "floordiv", "mod", "xor", "and"):
    setattr(Int, f"__{_name}__", _scalar(f"__{_name}__"))


class Tile(np.ndarray):
    """A tensor of a kernel."""

    type = SimpleNamespace(layout=None)

    def to(self, dtype: Any) -> Any:
        """Convert to a dtype of Gluon or of NumPy."""
        return self.astype(DTYPES.get(str(dtype), dtype))

    def permute(self, *order: int) -> Any:
        """Transpose, as Gluon names it."""
        return self.transpose(order)

    def split(self) -> tuple[Any, Any]:  # type: ignore[override]
        """Return both halves of the last axis, whose extent is 2."""
        return self[..., 0], self[..., 1]


DTYPES: dict[str, Any] = {
    "fp16": np.float16, "fp32": np.float32, "int32": np.int32, "int64": np.int64,
}  # fmt: skip


def tile(values: Any) -> Any:
    """Make a tensor of a kernel."""
    return np.asarray(values).view(Tile)


@dataclass(frozen=True)
class Pointer:
    """Addresses in a flat array."""

    data: Any
    offsets: Any = 0

    def __add__(self, more: Any) -> Pointer:
        return Pointer(self.data, self.offsets + more)

    def __getitem__(self, axes: Any) -> Pointer:
        return Pointer(self.data, np.asarray(self.offsets)[axes])


class Descriptor:
    """Stands in for a tensor descriptor of a tensor of NumPy."""

    layout = None

    def __init__(self, array: Any, block: Sequence[int]) -> None:
        self.array = array
        self.dtype = gl.float32 if array.dtype == np.float32 else gl.float16
        nbytes = int(np.prod(block)) * array.itemsize
        self.block_type = SimpleNamespace(shape=list(block), nbytes=nbytes)

    def _spans(self, coordinates: Sequence[int]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        there, here = [], []
        extents = zip(coordinates, self.block_type.shape, self.array.shape, strict=True)
        for start, extent, whole in extents:
            size = max(min(extent, whole - start), 0)
            there.append(slice(start, start + size))
            here.append(slice(0, size))
        return tuple(there), tuple(here)

    def read(self, coordinates: Sequence[int]) -> Any:
        """Return a block; 0 outside the tensor."""
        there, here = self._spans(coordinates)
        block = np.zeros(self.block_type.shape, self.array.dtype)
        block[here] = self.array[there]
        return block

    def write(self, coordinates: Sequence[int], block: Any) -> None:
        """Write the part of a block that lies in the tensor."""
        there, here = self._spans(coordinates)
        self.array[there] = block[here]

    def add(self, coordinates: Sequence[int], block: Any) -> None:
        """Add the part of a block that lies in the tensor."""
        there, here = self._spans(coordinates)
        self.array[there] += block[here]


def store(pointer: Pointer, values: Any, mask: Any = None, **_: str) -> None:
    """Write values where a mask holds."""
    mask = np.ones(np.shape(pointer.offsets), bool) if mask is None else mask
    values = np.broadcast_to(values, np.shape(pointer.offsets))
    pointer.data[np.asarray(pointer.offsets)[mask]] = values[mask]


def load(pointer: Pointer, mask: Any = True, other: float = 0.0, **_: str) -> Any:
    """Read values, or a number; `other` where a mask does not hold."""
    offsets = np.where(mask, pointer.offsets, 0)
    return tile(np.where(mask, pointer.data[offsets], other))


def atomic_add(
    pointer: Pointer, values: Any, mask: Any = True, sem: str = "acq_rel", scope: str = "gpu"
) -> Any:
    """Add where a mask holds, to addresses that may come twice; return what a single one held."""
    at = np.asarray(pointer.offsets)
    assert scope == "gpu"
    assert at.ndim == 0 or sem == "relaxed", "an addition of a tile that orders others costs more"
    before = None if at.ndim else Int(pointer.data[at])
    there = np.broadcast_to(mask, at.shape)
    np.add.at(pointer.data, at[there], np.broadcast_to(values, at.shape)[there])
    return before


def scalar(value: int) -> Int:
    """Make a scalar of a constant; one that is a scalar stays the very same."""
    return value if isinstance(value, Int) else Int(value)


def chosen(condition: Any, yes: Any, no: Any) -> Any:
    """Choose by elements, or by a scalar; the result is a new value."""
    if np.ndim(condition):
        return tile(np.where(condition, yes, no))
    value = yes if condition else no
    return Int(value) if isinstance(value, int) else value
