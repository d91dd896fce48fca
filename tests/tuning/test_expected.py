"""What a lookup expects of a config, against what tuning writes on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asmtune.measure.accuracy import Bound
from asmtune.tuning.options import TuneOptions
from asmtune.tuning.request import provenance
from tests.tuning_support import HostMachine, problem, request, space, workshop


def own_clock(call: Any, quantiles: Any) -> float:
    """Stand for a user's clock."""
    return 1.0


@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"effort": "quick", "isolate": True, "seed": 3},
        {"search_held_tiles": True},
        {"do_bench": own_clock},
        {"do_bench": own_clock, "rep": 20.0},
        {"restore_value": ("x_ptr",), "check": False},
        {"check": Bound(p99=1e-2), "reference": max},
        {"check": Bound(clip=0.0)},
    ],
    ids=lambda choices: " ".join(choices) or "none",
)
def test_lookups_expect_what_tuning_writes(tmp_path: Path, choices: dict[str, Any]) -> None:
    """Whatever a user chooses, what is tuned so is a hit for a launch that has chosen so."""
    bench = workshop(tmp_path, HostMachine())
    bench.options = TuneOptions.of(choices)  # type: ignore[arg-type]
    written = request(bench).expected
    expected = provenance(problem(), space(), choices)
    assert replace(expected, date="") == replace(written, date="")


def test_choices_that_change_what_is_best_are_told_apart() -> None:
    """Tiles, clock, check or bound each expect a config of their own."""
    chosen: list[dict[str, Any]] = [{}, {"search_held_tiles": True}]
    chosen += [{"do_bench": own_clock}, {"check": "bits"}]
    chosen += [{"check": Bound(p99=limit)} for limit in (1e-2, 1e-3)]
    chosen += [{"check": Bound(p99=1e-2), "reference": function} for function in (max, own_clock)]
    chosen += [{"tolerance": 0.1}, {"tolerance": 0.2}]
    made = [provenance(problem(), space(), choices) for choices in chosen]
    assert len({(one.source, one.space) for one in made}) == len(chosen)
