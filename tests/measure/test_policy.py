"""Timing policies that make no sense are refused."""

from __future__ import annotations

import pytest

from asmtune.base.errors import InputError
from asmtune.measure.timing.policy import TimingPolicy

LEAST = dict.fromkeys(("coarse_rounds", "most_rounds", "fine_rounds", "launches"), 1)
LEAST |= {"contention": 1, "hopeless": 1, "significance": 0, "spread": 0, "rsd": 0}
LEAST |= {"near_tie": 0, "entrant_us": 0, "warmup_us": 0, "flush_bytes": 0}


@pytest.mark.parametrize(("name", "least"), LEAST.items())
def test_figures_below_their_minimum(name: str, least: int) -> None:
    """Each is refused with its name, its value and its minimum, which itself is taken."""
    for value in (least - 0.01, float("nan")):
        with pytest.raises(InputError, match=f"{name} is {value}, and must be {least}"):
            TimingPolicy(**{name: value})
    assert getattr(TimingPolicy(**{name: least}), name) == least


def test_unknown_mode() -> None:
    """A mode that does not exist is refused, and both that do are named."""
    with pytest.raises(InputError, match='mode is \'cupti\'; take "events" or "graph"'):
        TimingPolicy(mode="cupti")  # type: ignore[arg-type]
