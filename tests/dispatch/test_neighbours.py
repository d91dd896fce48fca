"""How far two shapes are apart, and which stored config is a space's own."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asmtune.core.config import Config
from asmtune.core.space.space import Space
from asmtune.runtime.misses.lookups import distance

_sizes = st.integers(1, 1 << 40) | st.floats(1e-6, 1e12)
_others = st.booleans() | st.none() | st.text(max_size=3)


def shapes(names: tuple[str, ...] = ("M", "N")) -> st.SearchStrategy[dict[str, Any]]:
    """Shapes with the same names, and a value that is no size."""
    return st.fixed_dictionaries({**dict.fromkeys(names, _sizes), "mode": st.just("fast")})


@given(one=shapes(), other=shapes())
def test_distance_is_symmetric_and_zero_for_itself(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    """It is the same both ways, 0 from a shape to itself, and never below 0."""
    away = distance(one, other)
    assert away is not None
    assert away >= 0
    assert away == distance(other, one)
    assert distance(one, dict(one)) == 0


@given(one=shapes(), two=shapes(), three=shapes())
def test_no_detour_is_shorter(
    one: dict[str, Any], two: dict[str, Any], three: dict[str, Any]
) -> None:
    """Over a third shape it is at least as far."""
    legs = [distance(one, two), distance(two, three), distance(one, three)]
    assert None not in legs
    first, second, straight = (leg or 0.0 for leg in legs)
    assert straight <= first + second + 1e-9 * max(1.0, first, second)


@given(shape=shapes(), factor=st.sampled_from([2, 4, 8]))
def test_distance_counts_doublings(shape: dict[str, Any], factor: int) -> None:
    """Each doubling of a size is one step, whatever the size."""
    away = distance(shape, {**shape, "M": shape["M"] * factor})
    assert away == pytest.approx(math.log2(factor))


@given(one=_others | _sizes, other=_others)
def test_what_is_no_size_must_be_equal(one: Any, other: Any) -> None:
    """A flag, a name or nothing compares with its equal of the same type alone."""
    same = type(one) is type(other) and one == other
    assert (distance({"x": one}, {"x": other}) is not None) == same


@pytest.mark.parametrize("one", [{"M": 0}, {"M": -4}, {"N": 4}, {"M": 4, "N": 4}, {}])
def test_what_does_not_compare(one: dict[str, Any]) -> None:
    """Numbers of 0 or less, and other names, have no distance from a size."""
    assert distance(one, {"M": 4}) is None
    assert distance({"M": 4}, one) is None
    assert distance(one, one) == 0


@given(index=st.integers(0, 11), cap=st.none() | st.sampled_from([64, 128]))
def test_own_config_is_the_one_with_its_values(index: int, cap: int | None) -> None:
    """Each config of a space is found by its values, and with a cap that the space lacks."""
    space = Space({"BLOCK": [16, 32, 64], "num_warps": [2, 4], "num_stages": [1, 2]})
    config = list(space)[index].with_cap(cap)
    assert space.matching(Config.from_dict(config.to_dict())) == config


def test_own_config_of_another_space_is_none() -> None:
    """A config that the space has not, or that the sizes forbid, is none of its own."""
    space = Space({"BLOCK": [16, 32]}).where("fits", lambda BLOCK, n: n >= BLOCK)
    assert space.matching(Config({"BLOCK": 64}), n=64) is None
    assert space.matching(Config({"BLOCK": 32}), n=64) == Config({"BLOCK": 32})
    assert space.matching(Config({"BLOCK": 32}), n=16) is None
