"""Places on the axes of a space."""

from __future__ import annotations

import pytest

from asmtune.core.config import Config
from asmtune.tuning.search.base import Axes, steps


def test_places_follow_the_values() -> None:
    """Numbers stand by size, and no limit above every limit; what never changes is no axis."""
    configs = [
        Config({"BLOCK": block, "EVEN": True}, maxnreg=cap)
        for block in (128, 16, 64)
        for cap in (None, 64, 168)
    ]
    axes = Axes(configs)
    assert axes.places[Config({"BLOCK": 16, "EVEN": True}, maxnreg=64)] == (0, 0)
    assert axes.places[Config({"BLOCK": 128, "EVEN": True})] == (2, 2)
    assert axes.coordinates(configs[:2]).tolist() == [[1.0, 1.0], [1.0, 0.0]]


@pytest.mark.parametrize(
    ("one", "other", "count"),
    [((0, 0), (0, 0), 0), ((0, 1), (1, 1), 1), ((0, 1), (1, 2), 2), ((0, 0), (2, 0), None)],
)
def test_steps(one: tuple[int, ...], other: tuple[int, ...], count: int | None) -> None:
    """Places one value apart are neighbours, by the number of axes; others are none."""
    assert steps(one, other) == steps(other, one) == count


def test_a_hand_edited_config_has_a_place_of_its_own() -> None:
    """It differs from the one it was made from in what its file says, which is an axis then."""
    plain, other = Config({"BLOCK": 64}), Config({"BLOCK": 128})
    edited = plain.with_override("edited.ptx")
    axes = Axes([plain, other, edited])
    assert len(set(axes.places.values())) == 3
    assert {len(place) for place in Axes([plain, other]).places.values()} == {1}
