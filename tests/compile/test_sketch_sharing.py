"""Sketches of one tile: what a worker reuses changes nothing, and shares lose no config."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asmtune.base.settings import Settings
from asmtune.compile.lower import Lowering
from asmtune.compile.pool import Hooks, sketch_configs, tiles
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.records.artifacts import Failure, Sketch
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
