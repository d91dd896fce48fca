"""Errors of an output against a reference: definitions, non-finite values, formats, bounds."""

from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import asmtune
from asmtune.base.errors import InputError
from asmtune.measure import accuracy
from asmtune.measure.accuracy import (
    AccuracyStats,
    Bound,
    measure_accuracy,
)

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
NAN, INF = float("nan"), float("inf")


def numbers(stats: AccuracyStats) -> list[float]:
    """Every number of the statistics."""
    return [value for value in asdict(stats).values() if value is not None]


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers in float64."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_errors_are_as_defined() -> None:
    """Each statistic equals its formula in NumPy; quantiles are those of the sorted elements."""
    reference = normal(60, 70)
    output = (reference + 0.01 * normal(60, 70, seed=1)).float()
    stats = measure_accuracy(output, reference)
    o, r = output.double().numpy().ravel(), reference.numpy().ravel()
    error, rms = np.abs(o - r), np.sqrt((r**2).mean())
    relative = error / np.maximum(np.abs(r), rms)
    for name, want in {
        "max_abs": error.max(),
        "max_rel": relative.max(),
        "mean_rel": relative.mean(),
        "rms_share": np.sqrt((error**2).mean()) / rms,
        "cosine": (o * r).sum() / np.linalg.norm(o) / np.linalg.norm(r),
        "amax": np.abs(o).max(),
    }.items():
        assert getattr(stats, name) == pytest.approx(want, rel=1e-12), name
    for name, share in {"p50": 0.5, "p99": 0.99, "p999": 0.999}.items():
        want = np.quantile(relative, share, method="inverted_cdf")
        assert want <= getattr(stats, name) * (1 + 1e-7) <= want * 1.0021, name
    assert (stats.elements, stats.nonfinite, stats.clip) == (4200, 0, 0.0)


def test_relative_error_is_bounded_near_zeros() -> None:
    """An element that should be 0 counts by the usual magnitude, not as an infinite quotient."""
    reference = torch.ones(100)
    reference[7] = 0
    output = reference.clone()
    output[7] = 0.01
    assert measure_accuracy(output, reference).max_rel == pytest.approx(0.01, rel=0.01)
    assert measure_accuracy(output, torch.zeros(100)).rms_share == pytest.approx(1.0)


def test_equal_nonfinite_values_agree() -> None:
    """NaN and infinities where the reference has them are no error."""
    reference = torch.tensor([1.0, NAN, INF, -INF])
    stats = measure_accuracy(reference.clone(), reference)
    assert (stats.nonfinite, stats.max_abs, stats.elements, stats.amax) == (0, 0.0, 4, 1.0)
    assert Bound().violations(stats) == ()


def test_unequal_nonfinite_values_count() -> None:
    """NaN and infinities of one side alone count, break any bound, and leave all numbers finite."""
    reference = torch.tensor([[1.0, 2.0, NAN, INF, 5.0, 6.0], [1.0, 2, 3, 4, 5, -INF]])
    output = torch.tensor([[1.0, NAN, 3.0, -INF, INF, 6.5], [1.0, 2, 3, 4, 5, -INF]])
    stats = measure_accuracy(output, reference)
    assert stats.nonfinite == 4
    assert stats.max_abs == 0.5
    assert all(map(math.isfinite, numbers(stats)))
    assert Bound().violations(stats) == ("nonfinite 4 > 0",)
    assert Bound(nonfinite=4).violations(stats) == ()


@pytest.mark.parametrize("fill", [NAN, INF, 0.0, 1e308, 5e-324])
def test_no_statistic_is_nan_where_anything_differs_or_is_finite(fill: float) -> None:
    """All NaN, all infinite, all zero, huge and tiny tensors give finite numbers."""
    one, other = torch.full((3, 4), fill, dtype=torch.float64), normal(3, 4)
    for output, reference in ((one, one), (one, other), (other, one), (one, -one)):
        for pair in ((output, reference), (output[0, 0], reference[0, 0])):
            stats = measure_accuracy(*pair)
            none = not math.isfinite(fill) and stats.nonfinite == 0
            assert none or all(map(math.isfinite, numbers(stats)))


def test_empty_tensors_have_no_error() -> None:
    """Tensors without elements give zeros."""
    assert measure_accuracy(torch.ones(0, 3), torch.ones(0, 3)) == AccuracyStats(elements=0)
    assert measure_accuracy(torch.tensor(2.0), torch.tensor(1.0)).max_abs == 1.0


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.int64])
def test_integers_are_compared_exactly(dtype: torch.dtype) -> None:
    """Integers that differ show a difference, even where float64 holds both as one number."""
    reference = torch.zeros(50, dtype=dtype)
    if dtype == torch.int64:
        reference += 1 << 60
    output = reference.clone()
    assert measure_accuracy(output, reference).max_abs == 0
    output[3] = output[3] + 1
    assert measure_accuracy(output, reference).max_abs == 1.0


@pytest.mark.parametrize(("dtype", "most"), [(E4M3, 448.0), (E5M2, 57344.0)])
def test_clipping_counts_what_the_format_cannot_hold(dtype: torch.dtype, most: float) -> None:
    """Saturated and overflowed values count; a value at the limit that belongs there does not."""
    reference = torch.tensor([1.0, most, 2 * most, -3 * most])
    saturated = reference.clamp(-most, most).to(dtype)
    assert measure_accuracy(saturated, reference).clip == 0.5
    assert measure_accuracy(saturated.float(), reference).clip == 0
    overflowed = torch.tensor([1.0, most, NAN, NAN]).to(dtype)
    stats = measure_accuracy(overflowed, reference)
    assert (stats.clip, stats.nonfinite) == (0.5, 2)


def test_pieces_do_not_change_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor measured in pieces of any size gives the same statistics."""
    reference = normal(5, 37, 11)
    output = reference.to(E4M3)
    whole = measure_accuracy(output, reference)
    monkeypatch.setattr(accuracy, "PIECE", 400)
    split = measure_accuracy(output, reference)
    assert numbers(split) == pytest.approx(numbers(whole), rel=1e-12)
    assert measure_accuracy(output.mT, reference.mT).p999 == whole.p999


def test_violations_name_value_and_limit() -> None:
    """Each broken limit is one text with enough digits to tell value and limit apart."""
    stats = AccuracyStats(elements=9, p99=0.041, clip=0.0300001, cosine=0.98)
    bound = asmtune.Bound(p99=0.03, clip=0.03, cosine=0.99, max_abs=1.0)
    assert bound.violations(stats) == (
        "p99 0.041 > 0.03",
        "clip 0.0300001 > 0.03",
        "cosine 0.98 < 0.99",
    )
    assert asmtune.Bound(p99=0.041).violations(stats) == ()


@pytest.mark.parametrize("value", [-1.0, NAN, INF, "0.1", True])
def test_a_bound_is_a_number(value: float) -> None:
    """A limit that is negative, not finite or no number is refused by its name."""
    with pytest.raises(InputError, match="p99="):
        Bound(p99=value)


@given(st.floats(0, 10), st.floats(0, 10))
def test_a_bound_breaks_beyond_its_limit_alone(value: float, limit: float) -> None:
    """A limit is broken exactly where the value is greater."""
    broken = Bound(p50=limit).violations(AccuracyStats(elements=1, p50=value))
    assert bool(broken) == (value > limit)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_without_a_finite_pair_no_limit_is_kept(value: float) -> None:
    """Where output and reference are NaN everywhere, nothing was compared, and nothing is right."""
    same = torch.full((4,), value)
    stats = measure_accuracy(same, same)
    assert stats.nonfinite == 0
    assert math.isnan(stats.p99)
    assert Bound(p99=1.0).violations(stats) == ("p99 nan > 1",)
    assert Bound(cosine=0.0).violations(stats) == ("cosine nan < 0",)
    assert Bound(p99=1.0).violations(measure_accuracy(same, torch.ones(4))) == ("nonfinite 4 > 0",)
