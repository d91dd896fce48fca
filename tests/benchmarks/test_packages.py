"""The benchmark over public packages: what it calls equal, and how it sums up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.packages.programs import stopwatch
from benchmarks.packages.summary import document, judged, summary
from benchmarks.packages.tolerances import UNITS, compared, difference

ORIGIN = {"date": "2026-11-28T12:00:00", "commit": "abc"}


@pytest.mark.parametrize("dtype", UNITS)
@given(seed=st.integers(0, 1000), share=st.floats(0.0, 0.9))
def test_rounding_is_equal(dtype: torch.dtype, seed: int, share: float) -> None:
    """Values off by less than a unit everywhere are equal; the same are equal bit for bit."""
    values = torch.randn(64, generator=torch.Generator().manual_seed(seed)).to(dtype)
    off = (values.double() * (1 + share * UNITS[dtype] / 2)).to(dtype)
    assert difference(values, off)["equal"]
    same = difference(values, values.clone())
    assert same["bitwise"]
    assert same["max_abs"] == 0.0


@pytest.mark.parametrize("dtype", UNITS)
@given(place=st.integers(0, 63), units=st.floats(20.0, 1e4))
def test_one_wrong_value_is_not_equal(dtype: torch.dtype, place: int, units: float) -> None:
    """One value that is off by more than rounding explains makes an output differ."""
    values = torch.linspace(-1.0, 1.0, 10_000, dtype=torch.float64).to(dtype)
    wrong = values.clone()
    wrong[place] += units * UNITS[dtype]
    assert not difference(values, wrong)["equal"]


def test_odd_values() -> None:
    """Infinities and NaN must stand at the same places; integers and forms must be the same."""
    odd = torch.tensor([float("inf"), float("nan"), 1.0])
    assert difference(odd, odd.clone())["equal"]
    assert not difference(odd, torch.tensor([float("-inf"), float("nan"), 1.0]))["equal"]
    assert not difference(odd, torch.tensor([float("inf"), 0.0, 1.0]))["equal"]
    whole = torch.tensor([1, 2, 1000])
    assert difference(whole, whole.clone())["equal"]
    assert not difference(whole, torch.tensor([1, 2, 1001]))["equal"]
    assert "float16(2,)" in difference(torch.ones(2), torch.ones(2).half())["why"]
    assert not compared({"y": whole}, {})["y"]["equal"]
    assert difference(torch.zeros(3), torch.full((3,), 1e-9))["max_share"] == float("inf")
    assert difference(torch.ones(0), torch.ones(0))["equal"]


def test_overlaps_count_once() -> None:
    """The GPU is busy as long as any kernel runs; the gaps between kernels are not its time."""
    assert stopwatch.busy_us([(10.0, 12.0), (0.0, 4.0), (1.0, 2.0), (3.0, 5.0)]) == 7.0
    assert stopwatch.busy_us([]) == 0.0


def _told(first_s: float, speed: float | None = None) -> dict[str, Any]:
    """Make the result of an operation: the plain program's, or one that was timed beside it."""
    row: dict[str, Any] = {"first_s": first_s}
    if speed is not None:
        # Second is 4/9 of the speed of first, whoever that is; the last round has no partner.
        around = [speed * share for share in (1.5, 2 / 3, 0.6, 1.35, 1.65, 2.2 / 3, 9.0)]
        row["rounds"] = {"speed": around, "speed_of_call": around}
    return {"operations": {"op": row}}


def _save(folder: Path, first: torch.Tensor, last: torch.Tensor) -> Path:
    folder.mkdir()
    torch.save({"first": {"y": first}, "last": {"y": last}}, folder / "op.pt")
    return folder


def test_judged(tmp_path: Path) -> None:
    """The first call under asmtune counts as the last does; a speed is that of round pairs."""
    right, wrong = torch.ones(8), torch.tensor([1.0] * 7 + [2.0])
    told = {
        "plain": _told(9.0),
        "asmtune": _told(4.0, speed=1.5),
        "asmtune_warm": _told(1.0, speed=0.75),
    }
    outputs = {
        "plain": _save(tmp_path / "plain", right, right),
        "asmtune": _save(tmp_path / "asmtune", wrong, right),
        "asmtune_warm": _save(tmp_path / "warm", right, right),
    }
    row = judged(told, outputs)["op"]
    assert row["equal"] is False
    assert row["verdict"] == "differ"
    assert row["outputs"]["asmtune"]["y"]["max_abs"] == 1.0
    assert row["outputs"]["asmtune_warm"]["y"]["equal"]
    assert row["speed"] == {"asmtune": 1.5, "asmtune_warm": 0.75}
    assert row["first_s"] == {"plain": 9.0, "asmtune": 4.0, "asmtune_warm": 1.0}
    _save(tmp_path / "repaired", right, right)
    repaired = judged(told, {**outputs, "asmtune": tmp_path / "repaired"})
    assert repaired["op"]["equal"] is True
    programs = [{"package": "p 1.0", "provenance": ORIGIN, "operations": repaired}]
    whole = summary(programs)
    assert (whole["operations"], whole["equal"], whole["unequal"]) == (1, 1, 0)
    assert whole["first_s"] == {"asmtune": 4.0, "asmtune_warm": 1.0, "plain": 9.0}
    assert whole["speed"]["asmtune"] == {"geomean": 1.5, "worst": 1.5}
    assert "| p, op | 9.0 s | 4.0 s | 1.00 s | 1.500 | equal | 2026-11-28, abc |" in document(
        programs
    )
