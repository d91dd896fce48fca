"""Compares an argument with its expected contents: tolerance by dtype, poison, differences.

An element c is right if |c - r| <= t (|r| + s): r is the expected one, t the tolerance of the
dtypes involved, and s the usual magnitude around r. The error of a sum is bounded by the sum of its
terms' magnitudes (Higham, Accuracy and Stability of Numerical Algorithms, 4.2), not by its
result's; s replaces that sum where terms cancel. It is a mean of |r|, by row and column, so that
neither an outlier nor a row of small numbers changes the bound of other elements. NaN and
infinities must be where they are expected.

Every element is compared, so that one wrong row of ten thousand shows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from asmtune.core.dtypes import dtype_of
from asmtune.measure.checks.tensors import TensorArgument, integers

# Elements compared at once: their temporaries, some 150 MB, bound the memory of a check.
_PIECE: Final = 1 << 22
_SAMPLED: Final = 1 << 18
_STRETCH: Final = 1 << 26  # bytes compared at once in regions with gaps
# Magnitudes beyond this many medians are marks (-1e30 in a mask), and left out of the mean.
_UNUSUAL: Final = 1000.0
# As a share of the mean of all: smaller is noise. In gradients of causal attention all terms of the
# first query cancel. Two right kernels differed there by 6e-5 of the mean, of 4096 queries on an
# H100; at 0.01 fp16's tolerance would allow 5e-5.
_LEAST: Final = 0.05
_ENOUGH: Final = 16  # rows and columns from which their own means are used

Piece = tuple[slice, ...]


@dataclass(frozen=True)
class Magnitude:
    """Holds the usual magnitude around an element: a mean of |r|.

    Zeros, marks and non-finite values are left out.

    Attributes:
        mean: the mean over all elements; 0 if none is left.
        rows: means over the last axis, divided by `mean`, so that row times column is the
            magnitude where they cross; None if there are too few.
        columns: means over all other axes.
    """

    mean: float
    rows: Any = None
    columns: Any = None

    @classmethod
    def of(cls, values: Any) -> Magnitude:
        """Measure a tensor in one pass over it, and one over a sample."""
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
        """Return the magnitude around each element of a piece, or one for all."""
        if self.rows is None:
            return self.mean
        axes = _axes(self.rows.shape[:-1] + self.columns.shape[-1:])
        rows = self.rows[_across(piece, axes[0])].to(like.device, like.dtype)
        columns = self.columns[_across(piece, axes[1])].to(like.device, like.dtype)
        return (rows * columns).clamp_(min=_LEAST * self.mean)


def _axes(shape: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the axes to take means over: for rows and for columns, or all if too few."""
    last = len(shape) - 1
    if last < 1 or min(math.prod(shape[:-1]), shape[-1]) < _ENOUGH:
        return [tuple(range(len(shape)))]
    return [(last,), tuple(range(last))]


def _across(piece: Piece, axes: Sequence[int]) -> Piece:
    """Return the position of a piece in means over some axes."""
    return tuple(slice(None) if axis in axes else part for axis, part in enumerate(piece))


def pieces(shape: Sequence[int], most: int | None = None) -> Iterator[Piece]:
    """Yield parts of a tensor that together cover it, of `most` elements; by default 4 million."""
    most = most or _PIECE
    axis = next((place for place, size in enumerate(shape) if size > 1), None)
    if axis is None or math.prod(shape) <= most:
        yield tuple(slice(0, size) for size in shape)
        return
    inner = math.prod(shape[axis + 1 :])
    step = max(1, most // inner)
    before = tuple(slice(0, size) for size in shape[:axis])
    rest = list(pieces(shape[axis + 1 :], most))
    for start, after in itertools.product(range(0, shape[axis], step), rest):
        yield (*before, slice(start, min(start + step, shape[axis])), *after)


def widened(values: Any) -> Any:
    """Copy values to a float that holds them, except last digits of 64-bit integers."""
    import torch

    narrow = values.dtype.is_floating_point and values.dtype.itemsize <= 4
    return values.to(torch.float32 if narrow else torch.float64, copy=True)


def _median(values: Any) -> float:
    """Return the median magnitude of finite elements that are not 0, over an even sample."""
    size = widened(_sampled(values)).abs_()
    size = size[size.isfinite() & (size > 0)]
    return float(size.median()) if size.numel() else 0.0


def _sampled(values: Any) -> Any:
    """Take every n-th element along each axis, so that few are left."""
    for axis in range(values.dim()):
        step = math.ceil(values.numel() / _SAMPLED)
        if step > 1:
            values = values[(*[slice(None)] * axis, slice(None, None, step))]
    return values


# How much correct configs may differ if numbers of that type are multiplied, or stored on the way:
# another order of summation, roundings of intermediate results that change with the tile, one step
# of the output itself. tests/measure/test_outputs.py measures these.
_TOLERANCES: Final = {
    "fp64": 1e-8,
    "fp32": 1e-4,
    # Operands are cut or rounded to 11 bits, and that differs: cuDNN's convolutions were off by up
    # to 0.011 from ours on an H100, at 6 elements of 100,000.
    "tf32": 2e-2,
    "fp16": 5e-3,
    "bf16": 4e-2,
    "fp8e4nv": 0.35,
    "fp8e4b8": 0.35,
    "fp8e5": 0.75,
    "fp8e5b16": 0.75,
}
_POWERS_OF_TWO: Final = 1.0  # float8_e8m0fnu: one step is a factor of two
_MLIR_NAMES: Final = {
    "f64": "fp64",
    "f32": "fp32",
    "f16": "fp16",
    "f8E4M3FN": "fp8e4nv",
    "f8E4M3FNUZ": "fp8e4b8",
    "f8E5M2": "fp8e5",
    "f8E5M2FNUZ": "fp8e5b16",
}

# Bit patterns that no arithmetic produces: a NaN of hardware has all bits of its payload set, or
# one. Three of the 8-bit floats have no other NaN than hardware's, or one of either sign.
_POISONS: Final = {
    "float64": 0x7FFCA5A5A5A5A5A5,
    "float32": 0x7FE5A5A5,
    "bfloat16": 0x7FE5,
    "float16": 0x7EA5,
    "float8_e4m3fn": -1,
    "float8_e5m2": -3,
    "float8_e4m3fnuz": -128,
    "float8_e5m2fnuz": -128,
    "float8_e8m0fnu": -1,
    "uint8": 0xA5,
}


def tolerance_of(
    output: TensorArgument, inputs: Iterable[TensorArgument], products: Iterable[str]
) -> float:
    """Return how far correct elements may differ, relative to their magnitude; 0 for integers.

    Args:
        output: the argument that is compared.
        inputs: those that the kernel reads; intermediate results may be as narrow as they are.
        products: MLIR's element types of its matrix products, or "tf32".
    """
    if not output.dtype.is_floating_point:
        return 0.0
    if dtype_of(output) not in _TOLERANCES:
        return _POWERS_OF_TWO
    at_work = [dtype_of(tensor) for tensor in (output, *inputs)]
    at_work += [_MLIR_NAMES.get(product, product) for product in products]
    return max(_TOLERANCES.get(name or "", 0.0) for name in at_work)


def poison(tensor: TensorArgument) -> int:
    """Return the bit pattern, as an integer, that marks elements not written yet."""
    pattern = int.from_bytes(b"\xa5" * tensor.dtype.itemsize, "big", signed=True)
    return _POISONS.get(str(tensor.dtype).removeprefix("torch."), pattern)


def fill_poison(tensor: TensorArgument) -> None:
    """Write the poison pattern to all elements, not to the gaps between them."""
    bits(tensor.view()).fill_(poison(tensor))


def bits(values: Any) -> Any:
    """View the same memory as integers."""
    return values.view(integers(values.dtype))


def equal(actual: Any, expected: Any) -> bool:
    """Return whether integers are equal, whatever their devices."""
    return all(
        bool((actual[piece] == expected[piece].to(actual.device)).all())
        for piece in pieces(actual.shape, _STRETCH)
    )


class Output:
    """Compares one written argument with its expected contents, within a tolerance.

    Args:
        tensor: the argument.
        expected: elements laid out as the argument's, on any device.
        poisoned: whether the poison pattern marks elements that are not written.

    Attributes:
        tolerance: t of the formula.
        whose: the source of the expected output, for messages.
        reference: what errors are measured against, maybe in a wider dtype than the argument's.
        exact: whether the deviation is infinite where any bit differs.
    """

    def __init__(self, tensor: TensorArgument, expected: Any, *, poisoned: bool) -> None:
        self.tensor = tensor
        self.tolerance = 0.0
        self.whose = "the default config"
        self.exact = False
        self.reference = expected
        self._expected = expected
        self._poison = poison(tensor) if poisoned else None

    @cached_property
    def magnitude(self) -> Magnitude:
        """Return the usual magnitudes, found when an element differs first."""
        return Magnitude.of(self._expected)

    @property
    def is_blank(self) -> bool:
        """Return whether all that is expected is 0, NaN or infinite."""
        return not any(
            bool((size.isfinite() & (size > 0)).any())
            for size in (
                widened(self._expected[piece]).abs_() for piece in pieces(self._expected.shape)
            )
        )

    @property
    def compares_slots(self) -> bool:
        """Return whether sums may replace elements: of the default's outputs, not bit by bit."""
        return not self.exact and self.whose == "the default config"

    def deviation(self, differs: Callable[[int, int], bool] = lambda _start, _stop: True) -> Any:
        """Return the largest |c - r| / (|r| + s), as a tensor on the argument's device.

        It is infinite if NaN, infinity or poison is where it is not expected. `differs` returns
        whether bytes of the storage may differ from the expected: others are not compared.
        """
        import torch

        actual = self.tensor.view()
        worst = torch.zeros((), dtype=torch.float64, device=actual.device)
        for piece in pieces(actual.shape):
            if not differs(*self.tensor.extent(piece)):
                continue
            worst = torch.maximum(worst, self._deviations_of(actual, piece).amax().double())
        return worst

    def unwritten(self) -> int:
        """Count elements that hold poison and should have been written."""
        actual = self.tensor.view()
        return sum(self._unwritten(actual, piece) for piece in pieces(actual.shape))

    def describe(self) -> tuple[str, str]:
        """Describe a wrong output as a failure's kind and detail."""
        import numpy as np

        actual = self.tensor.view()
        wrong, missing = 0, self.unwritten()
        worst, place = -1.0, ()
        for piece in pieces(actual.shape):
            deviations = self._deviations_of(actual, piece)
            wrong += int((deviations > self.tolerance).sum())
            most = float(deviations.amax())
            if most > worst:
                inside = np.unravel_index(int(deviations.argmax()), deviations.shape)
                place = tuple(int(at) + part.start for at, part in zip(inside, piece, strict=True))
                worst = most
        total = f"of {self.tensor.elements:,} elements of {self.tensor.name}"
        if missing:
            return "unwritten", f"{missing:,} {total} stay unwritten, unlike in {self.whose}"
        got, expected = (self._number(tensor, place) for tensor in (actual, self._expected))
        far = ""
        if math.isfinite(worst):
            far = f", off by {worst:.3g} of its magnitude where {self.tolerance:.3g} may be"
        # The axis of a complex number's parts is left out.
        index = list(place[len(place) - len(self.tensor.shape) :])
        if self.exact:
            far = "; check='bits' allows no bit to differ"
        else:
            far += "; if both are right, give tolerance="
        return "wrong_output", (
            f"{wrong:,} {total} differ from {self.whose}, most at {index}: "
            f"{got} instead of {expected}{far}"
        )

    def give_expected(self) -> None:
        """Overwrite the argument with its expected contents."""
        self.tensor.view().copy_(self._expected)

    def _deviations_of(self, actual: Any, piece: Piece) -> Any:
        """Return |c - r| / (|r| + s) of a piece's elements."""
        import torch

        actual_piece, expected = actual[piece], self._expected[piece].to(actual.device)
        same = bits(actual_piece) == bits(expected)
        if self.exact:
            zeros = torch.zeros(same.shape, dtype=torch.float64, device=same.device)
            return zeros.masked_fill_(~same, math.inf)
        c, r = widened(actual_piece), widened(expected)
        deviations = (c - r).abs_().div_(r.abs().add_(self.magnitude.around(piece, r)))
        if self.tensor.dtype.is_floating_point:
            same |= (c == r) | (c.isnan() & r.isnan())
            deviations.masked_fill_(~(c.isfinite() & r.isfinite()), math.inf)
        else:
            # 64-bit integers that differ may be the same float.
            deviations.clamp_(min=torch.finfo(deviations.dtype).tiny)
        deviations.masked_fill_(same, 0.0)
        if self._poison is not None:
            out_of_place = (bits(actual_piece) == self._poison) != (bits(expected) == self._poison)
            deviations.masked_fill_(out_of_place, math.inf)
        return deviations

    def _unwritten(self, actual: Any, piece: Piece) -> int:
        """Count elements that hold poison and should have been written."""
        if self._poison is None:
            return 0
        actual_piece, expected = bits(actual[piece]), bits(self._expected[piece].to(actual.device))
        return int(((actual_piece == self._poison) & (expected != self._poison)).sum())

    def _number(self, values: Any, place: Sequence[int]) -> str:
        value = values[tuple(place)]
        if self._poison is not None and int(bits(value)) == self._poison:
            return "what was there"
        return f"{value.item():.6g}" if value.dtype.is_floating_point else str(value.item())
