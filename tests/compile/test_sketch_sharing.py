"""Sketches of one tile: what a worker reuses changes nothing, and shares lose no config."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asmtune.base.settings import Settings
from asmtune.compile.back_end import BackEnd
from asmtune.compile.lower import Lowering, LowerRequest
from asmtune.compile.pool import Hooks, sketch_configs, tiles
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.records.artifacts import Failure, Sketch
from asmtune.predict.features.sketch.reader import SketchReader
from tests.compile.making import accepted, sketch_one
from tests.compile.readings import admit, whole
from tests.sample_kernels import product_problem

TILE = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}

SPACE = [
    Config(tile, num_warps=warps, num_stages=stages, maxnreg=cap)
    for tile, warps, stages in (
        *((TILE, 4, 2), (TILE, 4, 3), (TILE, 8, 3)),
        ({**TILE, "BLOCK_N": 128}, 4, 3),
    )
    for cap in (None, 96, None, 255)
]


def asked(request: LowerRequest) -> dict[str, Any]:
    """A request as a child gets it."""
    return {"ttir": request.ttir, "options": request.options, "machine": request.machine}


@pytest.mark.parametrize("jobs", [1, 2])
def test_together_as_one_by_one(
    jobs: int, target: Target, empty_settings: Settings, settings: Settings
) -> None:
    """A space sketched by workers that take shares of a tile is what single sketches give."""
    configs, lowering = SPACE, Lowering(product_problem(), target, 30)
    chosen = replace(empty_settings, jobs=jobs)
    found = dict(sketch_configs(lowering, configs, Hooks(whole, admit), chosen))
    for position, config in enumerate(configs):
        request = accepted(lowering, config)
        single = sketch_one(request, empty_settings)
        assert isinstance(single, Sketch)
        assert found[position].reading == single  # type: ignore[union-attr]


def test_readings_are_shared_by_the_cap_alone(target: Target) -> None:
    """A profile read after another cap's is the profile that is read first."""
    configs, lowering, back_end = SPACE, Lowering(product_problem(), target, 30), BackEnd()
    reader, sketches = SketchReader(target), []
    for config in configs:
        request = accepted(lowering, config)
        made = back_end.sketch(asked(request))
        assert not isinstance(made, Failure)
        sketches.append(Sketch(request.digest, "sm_90", made["ttgir"], made["metadata"]))
    in_order = [reader(sketch) for sketch in sketches]
    # Each is read after one of another tile, so that nothing is shared.
    for place, sketch in enumerate(sketches):
        reader(sketches[(place + len(sketches) // 2) % len(sketches)])
        assert reader(sketch) == in_order[place]


def _lower(config: Config) -> Failure:
    return Failure("lower", "kernel", str(config))


CONFIGS = st.lists(
    st.builds(
        lambda block, warps, stages, cap: Config({"B": block}, warps, stages, maxnreg=cap),
        st.integers(1, 3),
        st.sampled_from([4, 8]),
        st.sampled_from([2, 3]),
        st.sampled_from([None, 64, 128]),
    ),
    max_size=40,
)


@given(CONFIGS, st.integers(1, 9))
def test_shares_of_tiles(configs: list[Config], most: int) -> None:
    """Every config is in one share, of its tile alone."""
    left = []
    shares = list(tiles(configs, _lower, lambda rest: left.append(rest) or most))  # type: ignore[func-returns-value]
    assert left == sorted(left, reverse=True)
    assert set(left) <= set(range(1, len(configs) + 1))
    assert sorted(position for share in shares for position, _ in share) == list(
        range(len(configs))
    )
    for share in shares:
        picked = [configs[position] for position, _ in share]
        assert [str(config) for config in picked] == [pair[1].detail for pair in share]  # type: ignore[union-attr]
        assert len({config.kwargs["B"] for config in picked}) == 1
        assert len(share) <= most
