"""Distributions of errors and values: bins, quantiles, the Kullback-Leibler divergence."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from torch import Tensor

_BINS: Final = 256
MANTISSA: Final = 14  # bits of a float32 that a bin drops: bins are 2^-9 wide, relatively


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
    bits = values.clamp(max=top).to(torch.float32).view(torch.int32) >> MANTISSA
    return torch.bincount(bits, minlength=1 << (31 - MANTISSA))


def quantiles(counts: Any, shares: Iterable[float]) -> list[float]:
    """Return the upper edges of the bins of `binned` that hold quantiles; 0 exactly."""
    import torch

    up_to = counts.cpu().cumsum(0)
    ranks = torch.tensor([max(1, math.ceil(share * int(up_to[-1]))) for share in shares])
    places = torch.searchsorted(up_to, ranks).tolist()
    return [of_bits(((at + 1) << MANTISSA) - 1) if at else 0.0 for at in places]


def of_bits(bits: int) -> float:
    """Return the float32 of these bits; the largest finite one for infinity."""
    import torch

    value = torch.tensor(bits, dtype=torch.int32).view(torch.float32)
    return min(float(value), torch.finfo(torch.float32).max)
