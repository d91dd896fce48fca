"""Distributions of errors and values: bins, quantiles, the Kullback-Leibler divergence."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from asmtune.measure.checks.compare import pieces

if TYPE_CHECKING:
    from torch import Tensor

PIECE: Final = 1 << 20
"""Elements measured at once: their temporaries take some 100 MB."""

_BINS: Final = 256
_MANTISSA: Final = 14  # bits of a float32 that a bin drops: bins are 2^-9 wide, relatively
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


def widened_pieces(
    output: Tensor, reference: Tensor
) -> Iterator[tuple[Tensor, Tensor, tuple[slice, ...]]]:
    """Yield pieces of both in float64 on the output's device, and their places."""
    import torch

    for place in pieces(output.shape, PIECE):
        want = reference[place].to(output.device)
        yield output[place].to(torch.float64), want.to(torch.float64), place


def value_counts(values: Tensor, low: float, high: float) -> Tensor:
    """Count finite values by equal bins from low to high; those outside count in the outer bins."""
    import torch

    # Halved, so that the span of float64's range does not overflow.
    width = (high / 2 - low / 2) / _BINS or 1.0
    known = values[values.isfinite() & (low <= high)]
    place = ((known / 2 - low / 2) / width).clamp_(0, _BINS - 1)
    return torch.bincount(place.long(), minlength=_BINS).cpu()


def divergence(reference: Tensor, output: Tensor) -> float:
    """Return the Kullback-Leibler divergence between two counts of `value_counts`, in nats."""
    p, q = (raised / raised.sum() for raised in (reference.double() + 0.5, output.double() + 0.5))
    return max(0.0, float((p * (p / q).log()).sum()))


def binned(values: Tensor) -> Any:
    """Count values of 0 or more by the leading 18 bits of their float32."""
    import torch

    top = torch.finfo(torch.float32).max
    bits = values.clamp(max=top).to(torch.float32).view(torch.int32) >> _MANTISSA
    return torch.bincount(bits, minlength=1 << (31 - _MANTISSA))


def quantiles(counts: Any, shares: Iterable[float]) -> list[float]:
    """Return the upper edges of the bins of `binned` that hold quantiles; 0 exactly."""
    import torch

    up_to = counts.cpu().cumsum(0)
    ranks = torch.tensor([max(1, math.ceil(share * int(up_to[-1]))) for share in shares])
    places = torch.searchsorted(up_to, ranks).tolist()
    return [_of_bits(((at + 1) << _MANTISSA) - 1) if at else 0.0 for at in places]


def error_histogram(fine: Any) -> ErrorHistogram:
    """Sum bins of `binned` up to 8 an octave, without empty ones at either end.

    Args:
        fine: counts of `binned`; None if there are no elements.
    """
    if fine is None:
        return ErrorHistogram((), (), 0)
    fine = fine.cpu()
    zeros, fine[0] = int(fine[0]), 0
    coarse = fine.view(-1, (1 << (23 - _MANTISSA)) // _OCTAVE_PARTS).sum(1)
    places = coarse.nonzero().flatten().tolist()
    if not places:
        return ErrorHistogram((), (), zeros)
    first, last = places[0], places[-1] + 1
    width = (1 << 23) // _OCTAVE_PARTS
    edges = tuple(_of_bits(place * width) for place in range(first, last + 1))
    return ErrorHistogram(edges, tuple(coarse[first:last].tolist()), zeros)


def _of_bits(bits: int) -> float:
    import torch

    value = torch.tensor(bits, dtype=torch.int32).view(torch.float32)
    return min(float(value), torch.finfo(torch.float32).max)
