"""Counts of elements by relative error."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from asmtune.measure.accuracy import AccuracyStats, measure_with_bins
from asmtune.workshop.regression.accuracy_run import ErrorHistogram, error_histogram


def counted(output: Tensor, reference: Tensor) -> tuple[AccuracyStats, ErrorHistogram]:
    """Measure errors, and count them."""
    stats, bins = measure_with_bins(output, reference)
    return stats, error_histogram(bins)


def test_histogram_counts_every_element() -> None:
    """Bins and zeros add up to all elements, and the bins span the errors."""
    reference = torch.randn(3000, generator=torch.Generator().manual_seed(0)).double()
    output = reference.to(torch.float8_e4m3fn).double()
    output[:100] = reference[:100]
    stats, histogram = counted(output, reference)
    assert histogram.zeros == 100
    assert sum(histogram.counts) == 2900
    assert histogram.edges[-2] <= stats.max_rel <= histogram.edges[-1]
    assert len(histogram.edges) == len(histogram.counts) + 1
    huge = counted(1e300 * reference, reference)[1]
    assert (sum(huge.counts), math.isfinite(huge.edges[-1])) == (3000, True)
    exact = counted(reference, reference)[1]
    assert (exact.counts, exact.zeros) == ((), 3000)
    assert counted(torch.ones(0), torch.ones(0))[1] == ErrorHistogram((), (), 0)
