"""Choices: e4m3 or e5m2, the size of groups that share a scale, and layers that stay in 16 bits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import torch

from asmtune.base.errors import InputError
from asmtune.measure.accuracy import measure_accuracy
from asmtune.workshop.lowprec.casting import (
    E4M3,
    E5M2,
    Granularity,
    amax_of,
    count_clipped,
    scaled,
)
from asmtune.workshop.lowprec.layers import ModelTrace
from asmtune.workshop.lowprec.scaler import Scaler

# Rounding to 2 bits of mantissa in place of 3 adds 0.0021 to the mean squared relative error (step
# squared over 12, by x squared for a logarithmically even x: 0.0028 and 0.0007). An element that
# becomes zero adds 1. So e5m2 pays where more than this share of them becomes zero in e4m3.
_LOST: Final = 0.002
_TAIL: Final = 0.01
_SIZES: Final = (16, 32, 64, 128, 256, 512)


@dataclass(frozen=True)
class FormatChoice:
    """An FP8 format, and the figures that it was chosen by.

    Attributes:
        dtype: `torch.float8_e4m3fn` or `torch.float8_e5m2`.
        range_bits: log2 of amax over the magnitude that 0.2% of the non-zero elements are below.
        tail_bits: log2 of amax over the magnitude that 1% of them are above.
        reason: says why, in one sentence.
    """

    dtype: torch.dtype
    range_bits: float
    tail_bits: float
    reason: str


def choose_format(
    values: torch.Tensor,
    granularity: Granularity = Granularity(),  # noqa: B008 - frozen
) -> FormatChoice:
    """Choose e4m3 or e5m2 by the dynamic range of a tensor within its blocks.

    e4m3 rounds twice as finely, and reaches from its largest number to zero in 18.8 bits where
    e5m2 takes 32.8. It is chosen unless more than 0.2% of the non-zero elements lie lower than
    that below their block's amax, and become zero: then they cost more than e5m2's coarser
    rounding, in mean squared relative error. Where the range is a tail's, finer blocks may keep
    e4m3, and the reason says so.

    Raises:
        InputError: no element is finite and not zero, or blocks do not divide the tensor.
    """
    amax, _ = amax_of(values, granularity)
    below = scaled(values, torch.where(amax > 0, amax, 1.0)).abs()
    below = below[below.isfinite() & (below > 0)]
    if not below.numel():
        raise InputError("no element is finite and not zero: there is no range to choose by")
    low, high = (_quantile(below, share) for share in (_LOST, 1.0 - _TAIL))
    range_bits, tail_bits = -math.log2(low), -math.log2(high)
    most = _range_bits(E4M3)
    if range_bits <= most:
        reason = f"the range of {range_bits:.1f} bits fits e4m3's {most:.1f}, which rounds finer"
        return FormatChoice(E4M3, range_bits, tail_bits, reason)
    reason = f"the range of {range_bits:.1f} bits exceeds e4m3's {most:.1f}"
    if range_bits - tail_bits <= most:
        reason += (
            f"; the largest {_TAIL:.0%} of the elements take {tail_bits:.1f} of them: smaller "
            "blocks may keep e4m3"
        )
    return FormatChoice(E5M2, range_bits, tail_bits, reason)


@dataclass(frozen=True)
class ScalerFigures:
    """Results of a scaler over batches, each cast by the scales known before it.

    Attributes:
        granularity: the blocks that share a scale.
        scales: number of them.
        clip: share of the finite elements that saturate; see `casting.count_clipped`.
        p99: 99th percentile of the relative error of what is cast and cast back, as
            `measure.accuracy` has it, with the RMS of each channel of the last axis in the place of
            that of all, which an outlier channel would set.
    """

    granularity: Granularity
    scales: int
    clip: float
    p99: float


def evaluate_scaler(batches: Sequence[torch.Tensor], scaler: Scaler) -> ScalerFigures:
    """Cast every batch but the first by the scales of those before it, as a program would.

    Args:
        batches: two tensors or more, of one shape.
        scaler: options of the scaler; it is left as it is, and a new one begins.

    Raises:
        InputError: there are fewer than two batches, or blocks do not divide them.
    """
    if len(batches) < 2:
        raise InputError(f"{len(batches)} batches: give two or more, the first for its scales")
    fresh = replace(scaler)
    clipped = finite = 0
    cast, reference = [], []
    for place, values in enumerate(batches):
        if place:
            clipped += count_clipped(values, fresh.scale, fresh.dtype)
            finite += int(values.isfinite().sum())
            cast.append(fresh.dequantize(fresh.quantize(values)))
            reference.append(values.float())
        fresh.update(values)
    original = torch.stack(reference)
    usual = torch.where(original.isfinite(), original, 0.0).square()
    usual = usual.mean(tuple(range(original.dim() - 1)), keepdim=True).sqrt_().clamp_(min=1e-30)
    stats = measure_accuracy(torch.stack(cast) / usual, original / usual)
    clip = clipped / max(1, finite)
    return ScalerFigures(scaler.granularity, fresh.scale.numel(), clip, stats.p99)


@dataclass(frozen=True)
class GroupChoice:
    """The smallest size of groups that keeps a clip target.

    Attributes:
        size: elements of the last axis that share a scale.
        tried: figures of each candidate up to the chosen one, in ascending order.
    """

    size: int
    tried: tuple[ScalerFigures, ...]


def choose_group_size(
    batches: Sequence[torch.Tensor],
    clip: float,
    scaler: Scaler | None = None,
    sizes: Sequence[int] = _SIZES,
) -> GroupChoice:
    """Choose the first of ascending group sizes whose clip ratio is at most a target.

    The clip ratio is that of `evaluate_scaler`: under running scales, which come from earlier
    batches. (A scale of the batch's own amax clips nothing, whatever the size.) A small group
    follows outlier channels, and its amax varies more from batch to batch, so that more saturates:
    the first size that keeps the target is the finest that this data allows.

    Args:
        batches: two tensors or more, of one shape.
        clip: the largest share of elements that may saturate.
        scaler: options of the scaler; the last size of its block is replaced. By default groups
            along the last axis share a scale over all other axes.
        sizes: candidates; divisors of the last axis. Of the default's those that divide it.

    Raises:
        InputError: the target is no share, no candidate keeps it, or one does not divide the last
            axis.
    """
    if not isinstance(clip, int | float) or not 0 <= clip <= 1:
        raise InputError(f"clip={clip!r}: give a share of elements, from 0 to 1")
    scaler, batches = scaler or Scaler(), list(batches)
    if sizes is _SIZES and batches and batches[0].dim():
        sizes = [size for size in sizes if not batches[0].shape[-1] % size] or sizes
    tried: list[ScalerFigures] = []
    for size in sorted(sizes):
        granularity = Granularity((*scaler.granularity.block[:-1], size))
        tried.append(evaluate_scaler(batches, replace(scaler, granularity=granularity)))
        if tried[-1].clip <= clip:
            return GroupChoice(size, tuple(tried))
    listed = ", ".join(f"{one.granularity.block[-1]}: {one.clip:.2g}" for one in tried)
    raise InputError(
        f"no group size keeps the clip ratio at {clip:g} ({listed or 'none given'}): give larger "
        "sizes, a margin, or method='max'"
    )


@dataclass(frozen=True)
class PrecisionPolicy:
    """Layers by precision.

    Attributes:
        low: names of layers in low precision.
        high: names of layers that stay in 16 bits, the one taken out first at the front.
        error: the estimated error with this policy; see `choose_precision`.
        share: share of the candidates' seconds or FLOPs that stay in low precision.
    """

    low: tuple[str, ...]
    high: tuple[str, ...]
    error: float
    share: float


def choose_precision(
    found: ModelTrace,
    budget: float,
    names: Sequence[str],
    by: Literal["seconds", "flops"] = "flops",
) -> PrecisionPolicy:
    """Choose which layers stay in 16 bits, so that the estimated error is within a budget.

    The estimate is the root of the sum of the squares of the layers' own relative errors (RMS of
    the error over RMS of the output), as if these were independent and passed through unchanged.
    Greedily the layer with the most squared error per FLOP or second is taken out first: it buys
    the most accuracy for the least speed. A layer that gives NaN or infinity where its reference
    does not never stays in low precision. Trace the mixed model to know its error.

    Args:
        found: trace of the model with all candidates in low precision.
        budget: largest estimated relative error.
        names: candidates; all calls of a layer count together.
        by: what low precision is worth.

    Raises:
        InputError: a name is not in the trace, the budget is no number of 0 or more, or the trace
            has no such costs.
    """
    is_number = isinstance(budget, int | float)
    if by not in ("seconds", "flops") or not (is_number and 0 <= budget < math.inf):
        raise InputError(f"by={by!r}, budget={budget!r}: give 'seconds' or 'flops', and 0 or more")
    errors: Counter[str] = Counter()
    costs: Counter[str] = Counter()
    for layer in found.layers:
        name = layer.name.partition("#")[0]
        # rms_share leaves out places that are not finite, and is NaN where all are.
        share = layer.alone.rms_share
        share = math.inf if layer.alone.nonfinite or math.isnan(share) else share
        errors[name] += share**2  # type: ignore[assignment]
        costs[name] += getattr(layer, by)
    unknown = [name for name in names if name not in errors]
    if unknown:
        raise InputError(f"choose_precision: {unknown[0]!r} is no layer of the trace")
    whole = math.fsum(costs[name] for name in names)
    if names and not whole:
        raise InputError(f"choose_precision: no layer has {by}; trace with repeats=1 or more")
    low = sorted(names, key=lambda name: errors[name] / costs[name] if costs[name] else math.inf)
    high: list[str] = []
    while low and math.sqrt(math.fsum(errors[name] for name in low)) > budget:
        high.append(low.pop())
    return PrecisionPolicy(
        low=tuple(name for name in names if name in low),
        high=tuple(high),
        error=math.sqrt(math.fsum(errors[name] for name in low)),
        share=math.fsum(costs[name] for name in low) / whole if whole else 0.0,
    )


def _quantile(values: torch.Tensor, share: float) -> float:
    # torch.quantile takes 16 million elements at most.
    place = min(values.numel(), max(1, math.ceil(share * values.numel())))
    return float(values.kthvalue(place).values)


def _range_bits(dtype: torch.dtype) -> float:
    """Return log2 of a format's largest number over the largest that rounds to zero."""
    info = torch.finfo(dtype)
    return math.log2(info.max / (info.smallest_normal * info.eps / 2))
