"""Counts elements by relative error, for pages and pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from asmtune.measure.distributions import MANTISSA, of_bits

_OCTAVE_PARTS: Final = 8


@dataclass(frozen=True)
class ErrorHistogram:
    """Counts elements by relative error.

    Attributes:
        edges: of the bins, 8 an octave, ascending; one more than counts.
        counts: elements a bin.
        zeros: elements without error.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    zeros: int


def error_histogram(fine: Any) -> ErrorHistogram:
    """Sum bins of `binned` up to 8 an octave, without empty ones at either end.

    Args:
        fine: counts of `binned`; None if there are no elements.
    """
    if fine is None:
        return ErrorHistogram((), (), 0)
    fine = fine.cpu()
    zeros, fine[0] = int(fine[0]), 0
    coarse = fine.view(-1, (1 << (23 - MANTISSA)) // _OCTAVE_PARTS).sum(1)
    places = coarse.nonzero().flatten().tolist()
    if not places:
        return ErrorHistogram((), (), zeros)
    first, last = places[0], places[-1] + 1
    width = (1 << 23) // _OCTAVE_PARTS
    edges = tuple(of_bits(place * width) for place in range(first, last + 1))
    return ErrorHistogram(edges, tuple(coarse[first:last].tolist()), zeros)
