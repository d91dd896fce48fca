"""Sketches of one tile: what a worker reuses changes nothing, and shares lose no config."""

from __future__ import annotations

from dataclasses import replace

import pytest

from asmtune.base.settings import Settings
from asmtune.compile.lower import Lowering
from asmtune.compile.pool import Hooks, sketch_configs
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.records.artifacts import Sketch
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
