"""How often the assembly's loops run, against totals that are known."""

from __future__ import annotations

import math

import pytest

from asmtune.core.config import Config
from asmtune.core.problem import Problem
from asmtune.kernels import tiled_matmul as matmul
from asmtune.predict.features.catalog import LaunchReading
from asmtune.predict.features.execution import executions
from tests.launch_kernels import (
    Launch,
    executed_flops,
    looped,
    persistent,
)

MACHINES = ("A100", "H200", "B200")
TILE = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
SMALL, WIDE, LONG, THIN = (64, 64, 32, 4), (128, 128, 64, 8), (64, 128, 128, 4), (16, 32, 128, 2)


def product(depth: int, dtype: str = "fp16") -> Problem:
    """A product whose result is 256 x 256."""
    return matmul.problem({"M": 256, "N": 256, "K": depth}, dtype, "meta")


def tiled(tile: tuple[int, int, int, int], stages: int = 3) -> Config:
    """A config of `matmul`."""
    m, n, k, warps = tile
    values = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8}
    return Config(values, num_warps=warps, num_stages=stages)


def hot_trips(reading: LaunchReading, tile_flops: float) -> float:
    """Trips of the multiplying loop and those peeled off it, if a trip does one whole tile."""
    segments, runs = reading.profile.segments, executions(reading.profile, reading.work)
    trips = 0.0
    for segment, run in zip(segments, runs, strict=True):
        flops = sum(segment.flops.values())
        assert flops in (0, tile_flops)
        trips += run.times * (flops == tile_flops)
    return trips


@pytest.mark.slow(seconds=1)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("tile", "stages", "dtype"),
    [
        (SMALL, 1, "fp16"),
        (SMALL, 3, "bf16"),
        (WIDE, 4, "fp16"),
        (LONG, 2, "fp16"),
        (THIN, 2, "fp16"),
        (SMALL, 3, "i8"),
        (WIDE, 3, "fp32"),
    ],
)
def test_products(
    machine: str, tile: tuple[int, int, int, int], stages: int, dtype: str, launch: Launch
) -> None:
    """A launch multiplies 2 M N K times whatever the tile, stages, dtype and instruction."""
    reading = launch(product(1024, dtype), tiled(tile, stages), machine)
    assert executed_flops(reading) == 2 * 256 * 256 * 1024
    m, n, k, _ = tile
    assert hot_trips(reading, 2 * m * n * k) == 1024 / k


@pytest.mark.slow(seconds=1)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("depth", [64, 128, 1000])
def test_short_and_ragged_products(machine: str, depth: int, launch: Launch) -> None:
    """One trip, of which Blackwell peels all; two; and a last one that is masked."""
    reading = launch(product(depth), tiled(WIDE), machine)
    assert executed_flops(reading) == 2 * 256 * 256 * math.ceil(depth / 64) * 64


@pytest.mark.slow(seconds=1)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("unroll", "trips"), [(2, 16), (2, 17), (4, 19), (4, 2)])
def test_unrolled_loops(machine: str, unroll: int, trips: int, launch: Launch) -> None:
    """Whole groups of trips run in the unrolled loop, and what is left in its remainder."""
    depth = 32 * trips
    reading = launch(looped(256, 256, depth, (64, 64), unroll), Config(TILE), machine)
    if trips < unroll and reading.profile.segments[0].flops:
        pytest.xfail("a group of trips that Triton 3.9 peels behind a branch counts as if it ran")
    assert executed_flops(reading) == pytest.approx(2 * 256 * 256 * depth)
    if machine == "B200":
        return  # peels either loop
    runs = executions(reading.profile, reading.work)
    assert [run.times for run in runs] == [1, trips // unroll, trips % unroll]
    _, main, rest = reading.profile.segments
    assert (
        sum(main.flops.values()) == unroll * sum(rest.flops.values()) == unroll * 2 * 64 * 64 * 32
    )


@pytest.mark.slow(seconds=1)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("flatten", [False, True])
def test_persistent_loops(machine: str, flatten: bool, launch: Launch) -> None:
    """Nested loops and fused ones do the same work, on 16 tiles by 3 programs of 16 trips each."""
    reading = launch(persistent(256, 512, 3, flatten), Config(TILE), machine)
    assert executed_flops(reading) == pytest.approx(2 * 256 * 256 * 512)
    assert hot_trips(reading, 2 * 64 * 64 * 32) == pytest.approx(16 / 3 * 16)
