"""How large an argument's elements are, around each of them; large ones are read in pieces."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

# Elements looked at together: their temporaries, some 150 MB, bound what a check takes.
_PIECE: Final = 1 << 22
_SAMPLED: Final = 1 << 18
# Magnitudes beyond this many medians are marks (-1e30 in a mask), no numbers to go by.
_UNUSUAL: Final = 1000.0
_LEAST: Final = 0.01  # of the mean over all: rows that are smaller still are noise
_ENOUGH: Final = 16  # rows and columns for which magnitudes of their own are worth a mean

Piece = tuple[slice, ...]


@dataclass(frozen=True)
class Magnitude:
    """The magnitude that is usual around an element: a mean of |r|.

    Zeros, marks and what is not finite are left out of it.

    Attributes:
        mean: over all elements; 0 where none is left.
        rows: over the last axis, divided by `mean`, so that row times column is the magnitude
            where they cross; None where there are too few to tell.
        columns: over all other axes.
    """

    mean: float
    rows: Any = None
    columns: Any = None

    @classmethod
    def of(cls, values: Any) -> Magnitude:
        """Measures a tensor, in one pass over it and a look at a sample."""
        import torch

        limit = _UNUSUAL * _median(values)
        shape = tuple(values.shape)
        groups = _axes(shape)
        lines = [
            [1 if axis in axes else shape[axis] for axis in range(len(shape))] for axes in groups
        ]
        sums = [torch.zeros(line, dtype=torch.float64, device=values.device) for line in lines]
        counts = [torch.zeros_like(line) for line in sums]
        for piece in pieces(shape):
            size = widened(values[piece]).abs_()
            usual = (size > 0) & (size <= limit)
            size.masked_fill_(~usual, 0.0)
            for axes, total, count in zip(groups, sums, counts, strict=True):
                place = _across(piece, axes)
                total[place] += size.sum(axes, keepdim=True, dtype=torch.float64)
                count[place] += usual.sum(axes, keepdim=True)
        means = [total / count.clamp(min=1) for total, count in zip(sums, counts, strict=True)]
        mean = float(sums[0].sum() / counts[0].sum().clamp(min=1))
        if len(groups) == 1 or mean == 0.0:
            return cls(mean)
        return cls(mean, (means[0] / mean).float(), means[1].float())

    def around(self, piece: Piece, like: Any) -> Any:
        """The magnitude around each element of a piece, or one for all, as `like` has its dtype."""
        if self.rows is None:
            return self.mean
        axes = _axes(self.rows.shape[:-1] + self.columns.shape[-1:])
        rows = self.rows[_across(piece, axes[0])].to(like.device, like.dtype)
        columns = self.columns[_across(piece, axes[1])].to(like.device, like.dtype)
        return (rows * columns).clamp_(min=_LEAST * self.mean)


def _axes(shape: Sequence[int]) -> list[tuple[int, ...]]:
    """Axes to take means over: for rows and for columns, or all, where there are too few."""
    last = len(shape) - 1
    if last < 1 or min(math.prod(shape[:-1]), shape[-1]) < _ENOUGH:
        return [tuple(range(len(shape)))]
    return [(last,), tuple(range(last))]


def _across(piece: Piece, axes: Sequence[int]) -> Piece:
    """Where a piece lies in means over some axes."""
    return tuple(slice(None) if axis in axes else part for axis, part in enumerate(piece))


def pieces(shape: Sequence[int], most: int | None = None) -> Iterator[Piece]:
    """Parts of a tensor that are all of it together.

    Args:
        shape: the tensor's.
        most: elements of a part, at most; some four million by default.
    """
    most = most or _PIECE
    axis = next((place for place, size in enumerate(shape) if size > 1), None)
    if axis is None or math.prod(shape) <= most:
        yield tuple(slice(0, size) for size in shape)
        return
    inner = math.prod(shape[axis + 1 :])
    step = max(1, most // inner)
    before = tuple(slice(0, size) for size in shape[:axis])
    rest = (
        list(pieces(shape[axis + 1 :], most))
        if inner > most
        else [tuple(slice(0, size) for size in shape[axis + 1 :])]
    )
    for start, after in itertools.product(range(0, shape[axis], step), rest):
        yield (*before, slice(start, min(start + step, shape[axis])), *after)


def widened(values: Any) -> Any:
    """A copy in a float that holds the values, but for the last digits of 64-bit integers."""
    import torch

    narrow = values.dtype.is_floating_point and values.dtype.itemsize <= 4
    return values.to(torch.float32 if narrow else torch.float64, copy=True)


def _median(values: Any) -> float:
    """Of the magnitudes of finite elements that are not 0, over an even sample."""
    size = widened(_sampled(values)).abs_()
    size = size[size.isfinite() & (size > 0)]
    return float(size.median()) if size.numel() else 0.0


def _sampled(values: Any) -> Any:
    """Every n-th element along each axis, so that few are left."""
    for axis in range(values.dim()):
        step = math.ceil(values.numel() / _SAMPLED)
        if step > 1:
            size = values.shape[axis]
            values = values[
                (*(slice(None) for _ in range(axis)), slice(None, None, min(step, size)))
            ]
    return values
