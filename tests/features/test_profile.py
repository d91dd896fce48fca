"""Profiles: how a kernel's assembly is cut into segments, and what each holds."""

from __future__ import annotations

import pytest

from asmtune.core.config import Config
from asmtune.ir.asm.nvptx import OpClass
from asmtune.predict.features.catalog import FEATURES
from asmtune.predict.features.reader import launch_features
from tests.launch_kernels import COMPILED, WITH_TENSOR_CORES, Launch, persistent
from tests.sample_kernels import product_problem

MACHINES = ("A100", "H200", "B200")
TILE = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}


@pytest.mark.slow
@pytest.mark.parametrize("machine", [*MACHINES, "MI250X", "MI355X"])
@pytest.mark.parametrize("flatten", [False, True])
def test_segments_are_the_kernel(machine: str, flatten: bool, launch: Launch) -> None:
    """Every instruction is in just one segment: their sums are the whole kernel's."""
    profile = launch(persistent(256, 512, 3, flatten), Config(TILE), machine).profile
    for kind in OpClass:
        counted = sum(segment.classes.get(kind, 0) for segment in profile.segments)
        assert counted == profile.static[f"{kind}_all"]
    flops = sum(sum(segment.flops.values()) for segment in profile.segments)
    assert flops == profile.static["tensor_flops"] > 0
    assert profile.static["unknown_all"] == 0


@pytest.mark.slow(seconds=1)
@pytest.mark.parametrize("machine", COMPILED)
def test_every_target(machine: str, launch: Launch) -> None:
    """Each shipped target gives every feature of a launch as a finite number not below 0."""
    reading = launch(product_problem(), Config(TILE, num_stages=2), machine)
    features = launch_features(reading.profile, reading.work, reading.target)
    assert set(features) == set(FEATURES)
    assert all(0 <= value < float("inf") for value in features.values())
    assert features["programs"] == 64
    if machine in WITH_TENSOR_CORES:
        assert features["program_flops"] * 64 == 2 * 512 * 512 * 1024
