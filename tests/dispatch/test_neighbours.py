"""How far shapes and devices are apart, and which stored config is a space's own."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asmtune.core.config import Config
from asmtune.core.hardware.model import apart, runs_all_of
from asmtune.core.hardware.shipped import load_target, target_names
from asmtune.core.records.tuned import Provenance, TuneKey, TuneRecord
from asmtune.runtime.misses.lookups import distance
from asmtune.store.neighbours import neighbours

_sizes = st.integers(1, 1 << 40) | st.floats(1e-6, 1e12)
_others = st.booleans() | st.none() | st.text(max_size=3)


def shapes(names: tuple[str, ...] = ("M", "N")) -> st.SearchStrategy[dict[str, Any]]:
    """Shapes with the same names, and a value that is no size."""
    return st.fixed_dictionaries({**dict.fromkeys(names, _sizes), "mode": st.just("fast")})


@given(one=shapes(), two=shapes(), three=shapes())
def test_no_detour_is_shorter(
    one: dict[str, Any], two: dict[str, Any], three: dict[str, Any]
) -> None:
    """It is the same both ways, 0 to itself, and over a third shape at least as far."""
    assert (distance(one, one), distance(one, two)) == (0, distance(two, one))
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


def test_devices_are_sorted_by_architecture_sms_and_bandwidth() -> None:
    """An H200 is nearest to itself, then to Hoppers of as many SMs, and to no device of AMD."""
    here = load_target("H200")
    away = {name: apart(load_target(name), here) for name in target_names()}
    near = sorted((d, name) for name, d in away.items() if d is not None)
    order = [name for _, name in near]
    assert order[0] == "H200"
    assert order.index("H100") < order.index("H100-PCIe") < order.index("H20")
    assert order.index("H20") < order.index("L4")
    assert order.index("A10") < order.index("T4")
    assert away["MI300X"] is None
    radeon, instinct = (
        replace(load_target(name), arch=arch)
        for name, arch in (("MI300X", "gfx90a"), ("MI300X", "gfx950"))
    )
    assert apart(radeon, instinct) == (0, 0x46, 0.0, 0.0)
    assert apart(replace(radeon, arch="gfx1100"), instinct) > (1,)


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        ({}, True),
        ({"sms": 66}, True),
        ({"shared_bytes_per_block": 100 << 10}, False),
        ({"registers_per_sm": 32768}, False),
        ({"max_threads_per_block": 512}, False),
        ({"arch": "sm_100"}, False),
    ],
)
def test_what_runs_there_runs_here(change: dict[str, Any], fits: bool) -> None:
    """Whatever ran on an H100 runs where the code is the same and no limit is smaller."""
    assert runs_all_of(replace(load_target("H200"), **change), load_target("H100")) == fits


def test_a_cluster_needs_as_many_sms() -> None:
    """A config of clusters is sure to fit a device of as many SMs only."""
    key = TuneKey("m.k", {"n": 4}, {"x": "fp16"}, "NVIDIA H100 80GB HBM3")
    made = Provenance("s", "p", "3.6.0", "2.11", "0.1", "580", "2026-01-01")
    record = TuneRecord(key, Config({"B": 1}, num_ctas=2), (), made)
    here = load_target("H200")
    for sms, fits in ((132, True), (66, False)):
        (near,) = neighbours(
            {"store": [record]},
            replace(key, device=here.aliases[0]),
            replace(here, sms=sms),
            distance,
        )
        assert near.surely_fits(record.winner) == fits
        assert near.surely_fits(Config({"B": 1}))
