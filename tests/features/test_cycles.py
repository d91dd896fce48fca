"""A program's demands on its SM, against figures worked out by hand."""

from __future__ import annotations

import pytest
import torch

from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.kernels import tiled_matmul as matmul
from asmtune.predict.features.catalog import FEATURES
from asmtune.predict.features.reader import launch_features
from tests.launch_kernels import (
    COMPILED,
    WITH_TENSOR_CORES,
    Launch,
)
from tests.sample_kernels import product_problem, scale_problem

TILE = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("block", "warps"), [(128, 4), (256, 1), (1024, 4), (4096, 8)])
def test_bytes_of_a_copy(dtype: torch.dtype, block: int, warps: int, launch: Launch) -> None:
    """A program that loads and stores a full block moves just these bytes."""
    config = Config({"BLOCK": block}, num_warps=warps)
    reading = launch(scale_problem(1 << 20, dtype), config, "H200")
    assert reading.cycles.l2_bytes == 2 * block * dtype.itemsize
    assert launch_features(reading.profile, reading.work, reading.target)["program_l2_bytes"] == (
        2 * block * dtype.itemsize
    )


def test_spills(launch: Launch) -> None:
    """Registers that spill cost L1, bytes and time, and nothing where none do."""
    free, capped = (
        launch(scale_problem(), Config({"BLOCK": 8192}, num_warps=1, maxnreg=cap), "H200")
        for cap in (None, 32)
    )
    assert free.profile.static["spill_words"] == free.cycles.spill_bytes == 0
    words = capped.profile.static["spill_words"]
    assert words > 0
    # A store and two loads of each word by each thread.
    assert capped.cycles.spill_bytes == 3 * words * 4 * 32
    assert capped.cycles.l1 > free.cycles.l1
    assert capped.cycles.latency > free.cycles.latency
    assert capped.cycles.l2_bytes > free.cycles.l2_bytes
    assert capped.cycles.issue > free.cycles.issue


@pytest.mark.parametrize(
    ("machine", "dtype", "rate"),
    [
        ("A100", "fp16", "fp16"),
        ("A100", "i8", "int8"),
        ("H200", "bf16", "bf16"),
        ("H200", "fp32", "tf32"),
        ("H200", "fp8e4nv", "fp8"),
        ("B200", "fp16", "fp16"),
        ("RTX4090", "fp16", "fp16"),
        ("MI250X", "fp16", "fp16"),
        ("MI300X", "i8", "int8"),
        ("MI355X", "fp8e4nv", "fp8"),
        ("MI355X", "fp32", "fp32"),
    ],
)
def test_tensor_cycles(machine: str, dtype: str, rate: str, launch: Launch) -> None:
    """Products take their FLOPs over the rate that the target states for their dtype."""
    problem = matmul.problem({"M": 256, "N": 256, "K": 512}, dtype, "meta")
    values = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32, "GROUP_M": 8}
    reading = launch(problem, Config(values, num_warps=8), machine)
    target = load_target(machine)
    a_cycle = target.tensor_flops_per_s[rate] / target.sms / target.clock_hz
    assert reading.cycles.tensor == pytest.approx(2 * 128 * 128 * 512 / a_cycle)


@pytest.mark.slow(seconds=1)
@pytest.mark.parametrize("machine", COMPILED)
def test_every_target(machine: str, launch: Launch) -> None:
    """Each shipped target gives every feature of a launch as a finite number not below 0."""
    config = Config(TILE, num_stages=2)
    reading = launch(product_problem(), config, machine)
    features = launch_features(reading.profile, reading.work, reading.target)
    assert set(features) == set(FEATURES)
    assert all(0 <= value < float("inf") for value in features.values())
    assert features["programs"] == 64
    if machine in WITH_TENSOR_CORES:
        assert features["program_flops"] * 64 == 2 * 512 * 512 * 1024
