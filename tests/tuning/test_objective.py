"""Objectives: how they are written, weighed, and what no config beats."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asmtune.base.errors import InputError
from asmtune.core.config import Config
from asmtune.tuning.objective import Costs, Objective, pareto_front

BASE = Costs(Config({"B": 0}), 10.0, 4.0, 1000)


def costs(index: int, time: float, energy: float | None, memory: int) -> Costs:
    return Costs(Config({"B": index}), time, energy, memory)


@pytest.mark.parametrize(
    ("text", "weights", "pareto"),
    [
        ("time", {"time": 1.0}, False),
        ("energy", {"energy": 1.0}, False),
        ("time=1,energy=0.2,memory=0.1", {"time": 1.0, "energy": 0.2, "memory": 0.1}, False),
        ("pareto", {"time": 1.0}, True),
        (" time = 2 , pareto", {"time": 2.0}, True),
    ],
)
def test_objectives_as_written(text: str, weights: dict[str, float], pareto: bool) -> None:
    """Each documented form gives its weights."""
    assert Objective.parse(text) == Objective(weights, pareto)


@pytest.mark.parametrize(
    "text", ["", "speed", "time=0", "time=-1", "time=x", "time=nan", "time,time", "pareto=1"]
)
def test_objectives_that_are_none(text: str) -> None:
    """What is no objective is refused in one line that shows the forms."""
    with pytest.raises(InputError, match="give time, energy, memory or error") as caught:
        Objective.parse(text)
    assert "\n" not in str(caught.value)


def test_weights_are_relative_to_the_base() -> None:
    """With half the weight on energy, 10% less of it is worth as much as 5% less time."""
    objective = Objective.parse("time=1,energy=0.5")
    faster, leaner = costs(1, 9.5, 4.0, 1000), costs(2, 10.0, 3.6, 1000)
    one, other = objective.sums([faster, leaner], BASE)
    assert one == pytest.approx(other)
    assert Objective.parse("time").sums([faster, leaner], BASE) == [0.95, 1.0]


def test_energy_that_was_not_measured() -> None:
    """A weight on energy without a counter is an error that says what to do."""
    with pytest.raises(InputError, match="nvidia-ml-py"):
        Objective.parse("energy").sums([costs(1, 9.0, None, 10)], BASE)


@given(st.lists(st.tuples(*[st.integers(1, 5)] * 3), min_size=1, max_size=30))
def test_the_front_is_what_nothing_beats(points: list[tuple[int, int, int]]) -> None:
    """A config is left out exactly where another is as good in all and better in one."""
    listed = [costs(i, time, energy, memory) for i, (time, energy, memory) in enumerate(points)]
    front = {one.config for one in pareto_front(listed)}
    for one, point in zip(listed, points, strict=True):
        beaten = any(
            all(a <= b for a, b in zip(other, point, strict=True)) and other != point
            for other in points
        )
        assert (one.config in front) != beaten


def test_an_unmeasured_quantity_decides_nothing() -> None:
    """Where energy is known of some alone, the front is of time and memory."""
    fast, small, worse = costs(1, 1.0, None, 20), costs(2, 2.0, 5.0, 10), costs(3, 3.0, 1.0, 30)
    assert pareto_front([worse, small, fast]) == [fast, small]
