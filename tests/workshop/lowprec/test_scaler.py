"""Scales from the running amax, casts by them, and what they cost."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from asmtune.base.errors import InputError
from asmtune.workshop.lowprec import (
    E4M3,
    E5M2,
    Granularity,
    Scaler,
    ScaleWarning,
    count_clipped,
    dequantize,
    quantize,
)
from asmtune.workshop.lowprec.casting import amax_of


def test_each_block_has_its_own_amax() -> None:
    """Scales per tensor, channel, row group and tile are the largest magnitudes of those blocks."""
    values = torch.arange(-11.0, 13.0).reshape(4, 6)
    for block, expected in (
        ((), [[12.0]]),
        ((1,), [[11.0, 10.0, 9.0, 10.0, 11.0, 12.0]]),
        ((1, -1), [[11.0], [5.0], [6.0], [12.0]]),
        ((1, 3), [[11.0, 8.0], [5.0, 2.0], [3.0, 6.0], [9.0, 12.0]]),
        ((2, 3), [[11.0, 8.0], [9.0, 12.0]]),
    ):
        amax, finite = amax_of(values, Granularity(block))
        assert amax.tolist() == expected
        assert int(finite.sum()) == values.numel()


@given(
    dtype=st.sampled_from([E4M3, E5M2]),
    power=st.integers(-20, 20),
    seed=st.integers(0, 1000),
    block=st.sampled_from([(), (1,), (1, 4), (2, 4)]),
)
def test_casts_lose_half_a_step_at_most(
    dtype: torch.dtype, power: int, seed: int, block: tuple[int, ...]
) -> None:
    """What is cast and cast back is off by half a step of the format, by each block's scale."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(4, 8, generator=generator) * 2.0**power
    scaler = Scaler(Granularity(block), dtype)
    scaler.update(values)
    back = scaler.dequantize(scaler.quantize(values))
    info = torch.finfo(dtype)
    one = torch.ones_like(values)
    scales = dequantize(one, scaler.scale)
    step = torch.maximum(values.abs(), scales * info.smallest_normal) * info.eps
    assert bool(((back - values).abs() <= step / 2 * (1 + 1e-5)).all())
    assert count_clipped(values, scaler.scale, dtype) == 0


def test_casts_saturate() -> None:
    """Above the format's largest number there is that number, and NaN stays NaN."""
    values = torch.tensor([463.0, 465.0, 1e9, -math.inf, math.nan])
    stored = quantize(values, torch.tensor(1.0)).float()
    assert stored[:4].tolist() == [448.0, 448.0, 448.0, -448.0]
    assert bool(stored[4].isnan())
    assert count_clipped(values, torch.tensor(1.0)) == 2


@pytest.mark.parametrize(
    ("method", "expected"),
    [("ema", 0.5 * (0.5 * 4 + 0.5 * 8) + 0.5 * 2), ("max", 8.0), ("last", 2.0)],
)
def test_methods_weigh_the_past(method: Any, expected: float) -> None:
    """The scale is of the average, the largest of the history or the last amax, with a margin."""
    scaler = Scaler(method=method, decay=0.5, history=2, margin=1.0)
    for amax in (4.0, 8.0, 2.0):
        scaler.update(torch.tensor([amax, -1.0]))
    assert float(scaler.amax) == expected
    assert float(scaler.scale) == pytest.approx(expected * 2 / 448)
    scaler.update(torch.tensor([2.0]).expand(2))
    if method == "max":
        assert float(scaler.amax) == 2.0, "the history keeps two updates"


def test_an_anomaly_is_told() -> None:
    """An amax of 10 times the recent mean warns, with its figures; one of 9 times does not."""
    scaler = Scaler(Granularity((1,)))
    quiet = torch.ones(4, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scaler.update(quiet)
        scaler.update(quiet * 9)
    loud = quiet.clone()
    loud[2, 1] = 60.0
    with pytest.warns(ScaleWarning, match="amax 60 is 12 times the recent mean 5, in 1 b"):
        scaler.update(loud)


def test_nan_is_told_and_in_no_scale() -> None:
    """NaN and infinities warn, and leave the scales as the finite elements make them."""
    values = torch.tensor([[1.0, math.nan], [math.inf, 2.0], [-math.inf, math.nan]])
    scaler = Scaler(Granularity((1, -1)))
    with pytest.warns(ScaleWarning, match="4 NaN or infinite elements are in no scale"):
        scaler.update(values)
    assert scaler.nonfinite == 4
    assert scaler.amax.flatten().tolist() == [1.0, 2.0, 0.0]
    with pytest.warns(ScaleWarning):
        scaler.update(torch.full_like(values, math.nan))
    assert scaler.amax.flatten().tolist() == [1.0, 2.0, 0.0], "nothing finite says nothing"


def test_a_saved_state_goes_on_where_it_was() -> None:
    """Options and state go through a file of tensors and numbers; later scales are the same."""
    torch.manual_seed(0)
    first = Scaler(Granularity((1, 4)), method="max", history=3)
    for _ in range(4):
        first.update(torch.randn(2, 8))
    buffer = io.BytesIO()
    torch.save(first.state_dict(), buffer)
    buffer.seek(0)
    second = Scaler(Granularity((1, 4)), method="max", history=3)
    second.load_state_dict(torch.load(buffer, weights_only=True))
    values = torch.randn(2, 8)
    for scaler in (first, second):
        scaler.update(values)
    assert second.updates == 5
    assert torch.equal(first.scale, second.scale)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: Scaler(Granularity((1, 3))).update(torch.ones(2, 8)), "pad it to 9, or take 2"),
        (lambda: Scaler().update(torch.ones(2, 0)), "empty"),
        (lambda: Scaler().quantize(torch.ones(2)), "seen no values"),
        (lambda: Scaler(dtype=torch.float16), "float8_e4m3fn"),
        (lambda: Granularity((0,)), "sizes from 1"),
        (lambda: quantize(torch.ones(4, 6), torch.ones(4, 4)), "do not divide"),
        (lambda: Scaler((1, 128)), r"granularity=\(1, 128\)"),
        (lambda: Scaler(margin=math.nan), "margin=nan"),
        (lambda: Scaler(history=1.5), "history=1.5"),
    ],
)
def test_bad_input_is_one_line(use: Callable[[], Any], message: str) -> None:
    """Shapes, dtypes and options that do not fit are refused in one line."""
    with pytest.raises(InputError, match=message) as caught:
        use()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("nothing", [0.0, math.nan])
def test_the_average_begins_with_a_number(nothing: float) -> None:
    """A first batch of zeros or NaN says nothing of a block's range, nor of its recent mean."""
    scaler = Scaler(Granularity((1,)))
    first = torch.tensor([[nothing, 4.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if math.isnan(nothing) else "error", ScaleWarning)
        for _ in range(12):
            scaler.update(first)
    assert scaler.scale[0, 0] == 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            scaler.update(torch.full((1, 2), 4.0))
    assert scaler.amax.flatten().tolist() == [4.0, 4.0]
