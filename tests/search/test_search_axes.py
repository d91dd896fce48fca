"""Places on the axes of a space."""

from __future__ import annotations

import numpy as np

from asmtune.core.config import Config
from asmtune.tuning.search.base import Axes


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


def test_axes_of_words_and_of_what_some_lack() -> None:
    """Words, flags and values that a config lacks have places as well."""
    configs = [Config({"WAY": "row"}), Config({"WAY": "column"}), Config({"SPLIT": 2})]
    places = Axes(configs).places
    assert len(set(places.values())) == 3
    assert Axes(configs[:1]).coordinates(configs[:1]).shape == (1, 0)


def test_coordinates_span_each_axis() -> None:
    """Every axis goes from 0 to 1, evenly."""
    configs = [Config({"BLOCK": 16 << place}) for place in range(5)]
    assert np.allclose(Axes(configs).coordinates(configs)[:, 0], [0, 0.25, 0.5, 0.75, 1])


def test_a_hand_edited_config_has_a_place_of_its_own() -> None:
    """It differs from the one it was made from in what its file says, which is an axis then."""
    plain, other = Config({"BLOCK": 64}), Config({"BLOCK": 128})
    edited = plain.with_override("edited.ptx")
    axes = Axes([plain, other, edited])
    assert len(set(axes.places.values())) == 3
    assert {len(place) for place in Axes([plain, other]).places.values()} == {1}
