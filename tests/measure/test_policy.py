"""Timing policies that make no sense are refused."""

from __future__ import annotations

from typing import Any

import pytest

from asmtune.base.errors import InputError
from asmtune.measure.timing.policy import TimingPolicy


@pytest.mark.parametrize(
    ("name", "value", "least"),
    [
        ("coarse_rounds", 0, 1),
        ("most_rounds", 0, 1),
        ("fine_rounds", -1, 1),
        ("launches", 0, 1),
        ("contention", 0.99, 1),
        ("hopeless", float("nan"), 1),
        ("significance", -0.01, 0),
        ("spread", -1, 0),
        ("rsd", float("nan"), 0),
        ("near_tie", -0.5, 0),
        ("entrant_us", float("nan"), 0),
        ("warmup_us", float("nan"), 0),
        ("flush_bytes", -1, 0),
    ],
)
def test_figures_below_their_minimum(name: str, value: Any, least: int) -> None:
    """Each is refused with its name, its value and its minimum, which itself is taken."""
    with pytest.raises(InputError, match=f"TimingPolicy: {name} is {value}, and must be {least}"):
        TimingPolicy(**{name: value})
    assert getattr(TimingPolicy(**{name: least}), name) == least


def test_unknown_mode() -> None:
    """A mode that does not exist is refused, and both that do are named."""
    with pytest.raises(InputError, match='mode is \'cupti\'; take "events" or "graph"'):
        TimingPolicy(mode="cupti")  # type: ignore[arg-type]
