"""Whether an argument holds what it should: tolerance by dtype, poison, and where it differs.

An element c is right where |c - r| <= t (|r| + s): r is the expected one, t the tolerance of the
dtypes at work, and s the magnitude that is usual around r. The error of a sum is bounded by the
sum of its terms' magnitudes (Higham, Accuracy and Stability of Numerical Algorithms, 4.2), not by
its result's; s stands for it where terms cancel. It is a mean of |r|, by row and column, so that
neither an outlier somewhere nor a row of small numbers changes what is asked of the others. NaN
and infinities must stand where they are expected.

Every element is held to this, so that one wrong row of ten thousand shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

from asmtune.core.dtypes import dtype_of
from asmtune.measure.checks.magnitude import Magnitude, Piece, pieces, widened
from asmtune.measure.checks.tensors import Slot, integers

# What configs that are all right may differ by where numbers of that type are multiplied, or
# stored on the way: another order of summation, roundings of intermediate results that change
# with the tile, one step of the output itself. tests/measure/test_outputs.py measures these.
_TOLERANCES: Final = {
    "fp64": 1e-8,
    "fp32": 1e-4,
    "tf32": 5e-3,
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

# Bit patterns that no arithmetic makes: a NaN of hardware has all bits of its payload set, or
# one. Three of the 8-bit floats know no other NaN than hardware's, or one of either sign.
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


def tolerance_of(output: Slot, inputs: Iterable[Slot], products: Iterable[str]) -> float:
    """How far right elements may be apart, relative to their magnitude: 0 for integers.

    Args:
        output: the argument that is compared.
        inputs: those that the kernel reads; results on the way may be as narrow as they are.
        products: MLIR's element types of its matrix products, or "tf32".
    """
    if not output.dtype.is_floating_point:
        return 0.0
    if dtype_of(output) not in _TOLERANCES:
        return _POWERS_OF_TWO
    at_work = [dtype_of(slot) for slot in (output, *inputs)]
    at_work += [_MLIR_NAMES.get(product, product) for product in products]
    return max(_TOLERANCES.get(name or "", 0.0) for name in at_work)


def poison(slot: Slot) -> int:
    """The bit pattern, as an integer, that stands in elements which nobody has written."""
    pattern = int.from_bytes(b"\xa5" * slot.dtype.itemsize, "big", signed=True)
    return _POISONS.get(str(slot.dtype).removeprefix("torch."), pattern)


def fill_poison(slot: Slot) -> None:
    """Writes the pattern to all elements, and not to the gaps between them."""
    bits(slot.view()).fill_(poison(slot))


def bits(values: Any) -> Any:
    """The same memory as integers."""
    return values.view(integers(values.dtype))


class Output:
    """One written argument: what it should hold, and how far it may be from that.

    Args:
        slot: the argument.
        expected: elements laid out as the slot's, on any device.
        poisoned: whether the pattern marks elements that nobody writes.

    Attributes:
        tolerance: t of the formula.
        whose: whose output is expected, for messages.
    """

    def __init__(self, slot: Slot, expected: Any, *, poisoned: bool) -> None:
        self.slot = slot
        self.tolerance = 0.0
        self.whose = "the default config"
        self.magnitude = Magnitude.of(expected)
        self._expected = expected
        self._poison = poison(slot) if poisoned else None

    def deviation(self) -> Any:
        """The largest |c - r| / (|r| + s), as a tensor of one number on the slot's device.

        Infinite where NaN, infinity or poison stands out of place.
        """
        import torch

        found = self.slot.view()
        worst = torch.zeros((), dtype=torch.float64, device=found.device)
        for piece in pieces(found.shape):
            worst = torch.maximum(worst, self._away(found, piece).amax().double())
        return worst

    def describe(self) -> tuple[str, str]:
        """What is wrong, as a failure's kind and detail; for an output that is."""
        found = self.slot.view()
        wrong = missing = 0
        worst, place = -1.0, ()
        for piece in pieces(found.shape):
            away = self._away(found, piece)
            wrong += int((away > self.tolerance).sum())
            missing += self._unwritten(found, piece)
            most = float(away.amax())
            if most > worst:
                inside = _unravel(int(away.argmax()), away.shape)
                place = tuple(at + part.start for at, part in zip(inside, piece, strict=True))
                worst = most
        total = f"of {self.slot.elements:,} elements of {self.slot.name}"
        if missing:
            return "unwritten", f"{missing:,} {total} stay unwritten, unlike in {self.whose}"
        got, due = (self._number(tensor, place) for tensor in (found, self._expected))
        far = f", off by {worst:.3g} of its magnitude where {self.tolerance:.3g} may be"
        # A complex number's part goes unnamed.
        index = list(place[len(place) - len(self.slot.shape) :])
        return "wrong_output", (
            f"{wrong:,} {total} differ from {self.whose}, most at {index}: {got} instead of {due}"
            f"{far if math.isfinite(worst) else ''}; if both are right, give tolerance="
        )

    def give_expected(self) -> None:
        """Writes what is expected over what was found."""
        self.slot.view().copy_(self._expected)

    def _away(self, found: Any, piece: Piece) -> Any:
        """|c - r| / (|r| + s) of a piece's elements."""
        import torch

        got, due = found[piece], self._expected[piece].to(found.device)
        same = bits(got) == bits(due)
        c, r = widened(got), widened(due)
        away = (c - r).abs_().div_(r.abs().add_(self.magnitude.around(piece, r)))
        if self.slot.dtype.is_floating_point:
            same |= (c == r) | (c.isnan() & r.isnan())
            away.masked_fill_(~(c.isfinite() & r.isfinite()), math.inf)
        else:
            # 64-bit numbers that differ may be the same float.
            away.clamp_(min=torch.finfo(away.dtype).tiny)
        away.masked_fill_(same, 0.0)
        if self._poison is not None:
            out_of_place = (bits(got) == self._poison) != (bits(due) == self._poison)
            away.masked_fill_(out_of_place, math.inf)
        return away

    def _unwritten(self, found: Any, piece: Piece) -> int:
        """How many elements hold poison that should have been written over."""
        if self._poison is None:
            return 0
        got, due = bits(found[piece]), bits(self._expected[piece].to(found.device))
        return int(((got == self._poison) & (due != self._poison)).sum())

    def _number(self, values: Any, place: Sequence[int]) -> str:
        value = values[tuple(place)]
        if self._poison is not None and int(bits(value)) == self._poison:
            return "what was there"
        return f"{value.item():.6g}" if value.dtype.is_floating_point else str(value.item())


def _unravel(place: int, shape: Sequence[int]) -> list[int]:
    """Indices of the element at a position of the flattened tensor."""
    found = []
    for size in reversed(shape):
        place, index = divmod(place, size)
        found.append(index)
    return found[::-1]
