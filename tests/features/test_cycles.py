"""A program's demands on its SM, against figures worked out by hand."""

from __future__ import annotations

import pytest
import torch

from asmtune.core.config import Config
from asmtune.core.hardware.model import MMA_SYNC_SHARE
from asmtune.core.hardware.shipped import load_target
from asmtune.core.problem import Problem
from asmtune.kernels import tiled_matmul as matmul
from asmtune.predict.features import cycles as locality
from asmtune.predict.features.catalog import FEATURES
from asmtune.predict.features.cycles import program_cycles
from asmtune.predict.features.execution import executions
from asmtune.predict.features.reader import launch_features
from tests.launch_kernels import (
    COMPILED,
    WITH_TENSOR_CORES,
    Launch,
    column_copy,
    many_powers,
    pointers,
    two_loops,
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


def test_bytes_of_loops(launch: Launch) -> None:
    """What a loop moves counts as often as it runs."""
    arguments = {**pointers(torch.float32, "x_ptr", "y_ptr"), "first": 100, "second": 7}
    reading = launch(Problem(two_loops, arguments, (4,)), Config({"BLOCK": 1024}), "H200")
    assert reading.cycles.l2_bytes == (100 + 7) * 1024 * 4
    assert reading.cycles.trips == 100


def test_columns_cost_more(launch: Launch) -> None:
    """Elements a row apart cost a sector of 32 bytes each, eight times a contiguous float."""
    found = []
    for pitch in (1, 4096):
        arguments = {**pointers(torch.float32, "x_ptr", "y_ptr"), "pitch": pitch}
        problem = Problem(column_copy, arguments, (64,))
        found.append(launch(problem, Config({"BLOCK": 1024}), "H200").cycles)
    contiguous, strided = found
    assert contiguous.l2_bytes == 2 * 1024 * 4
    assert strided.l2_bytes == 8 * contiguous.l2_bytes
    assert strided.l1 > contiguous.l1


@pytest.mark.slow(seconds=1)
@pytest.mark.parametrize("machine", ["A100", "H200", "B200"])
def test_stages_hide_latency(machine: str, launch: Launch) -> None:
    """Each stage more brings copies forward, until the chain itself is what takes long."""
    problem = product_problem()
    found = [
        launch(problem, Config(TILE, num_stages=stages), machine).cycles.latency
        for stages in (2, 3, 4)
    ]
    assert found[0] > found[1] > found[2]
    deep = launch(problem, Config(TILE, num_stages=6), machine).cycles.latency
    assert deep < found[2]


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


@pytest.mark.parametrize("machine", ["A100", "H200"])
def test_special_functions(machine: str, launch: Launch) -> None:
    """Each exp2 of each element takes one place of 16 a cycle."""
    arguments = {**pointers(torch.float32, "x_ptr", "y_ptr"), "times": 50}
    reading = launch(Problem(many_powers, arguments, (64,)), Config({"BLOCK": 1024}), machine)
    assert reading.cycles.special == 4 * 50 * 1024 / 16


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


def test_mma_sync_is_slower_on_hopper(launch: Launch) -> None:
    """A tile too small for wgmma is multiplied by mma.sync, at its share of the rate."""
    problem = matmul.problem({"M": 256, "N": 256, "K": 512}, "fp16", "meta")
    values = {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 128, "GROUP_M": 8}
    reading = launch(problem, Config(values, num_warps=2, num_stages=2), "H200")
    target = load_target("H200")
    a_cycle = target.tensor_flops_per_s["fp16"] / target.sms / target.clock_hz
    best = 2 * 16 * 32 * 512 / a_cycle
    assert reading.cycles.tensor == pytest.approx(best / MMA_SYNC_SHARE[9])


@pytest.mark.parametrize(
    ("machine", "dtype", "crosses"),
    [("H200", "fp32", True), ("H200", "fp16", False), ("A100", "fp32", False)],
)
def test_transposing_stores(machine: str, dtype: str, crosses: bool, launch: Launch) -> None:
    """Tf32's B must lie by columns for wgmma: narrow stores transpose it and meet in the banks.

    fp16 needs no transposing, and sm_80 transposes where it reads.
    """
    problem = matmul.problem({"M": 256, "N": 256, "K": 512}, dtype, "meta")
    values = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8}
    reading = launch(problem, Config(values, num_warps=4, num_stages=1), machine)
    stores = {line: n for (line, kind), n in reading.profile.bank_ways.items() if kind == "store"}
    assert bool(stores) == crosses
    (loop,) = (segment for segment in reading.profile.segments if segment.flops)
    # What it costs: B's 64 x 32 floats stored, this many times, in each of 16 trips.
    cost = sum(
        t.bytes * n * 128 * stores[t.line]
        for t, n in loop.traffic.items()
        if (t.space, t.direction) == ("shared", "store") and t.line in stores
    )
    assert cost == (64 * 32 * 4 * max(stores.values()) if crosses else 0)
    assert reading.cycles.shared >= 16 * cost / reading.target.shared_bytes_per_clock_per_sm


def test_stores_do_not_hit(launch: Launch) -> None:
    """A line that loads what was read before, and stores, has its loads cached alone."""
    arguments = {**pointers(torch.float32, "x_ptr", "y_ptr"), "first": 100, "second": 100}
    reading = launch(Problem(two_loops, arguments, (4,)), Config({"BLOCK": 1024}), "H200")
    hits = dict.fromkeys((line for s in reading.profile.segments for line in s.lines), 0.5)
    runs = executions(reading.profile, reading.work)
    sums = program_cycles(reading.profile, runs, reading.work, reading.target)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(locality, "_hits", lambda *_: hits)
        halved = program_cycles(reading.profile, runs, reading.work, reading.target)
    assert sums.l2_bytes - halved.l2_bytes == 0.5 * 100 * 1024 * 4


def test_more_trips_demand_more(launch: Launch) -> None:
    """Twice the depth of a product doubles what its loop demands, and changes no assembly."""
    config = Config(TILE)
    short, double = (launch(product_problem(size=size), config, "H200") for size in (1024, 2048))
    assert short.profile == double.profile
    assert double.cycles.flops == 2 * short.cycles.flops
    assert double.cycles.tensor == pytest.approx(2 * short.cycles.tensor)
    for name in ("issue", "shared", "l1", "latency", "l2_bytes", "instructions", "barriers"):
        once, twice = getattr(short.cycles, name), getattr(double.cycles, name)
        assert once < twice <= 2 * once


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


def test_waves_and_tail(launch: Launch) -> None:
    """Waves are programs over places, and the tail is what the last one leaves empty."""
    reading = launch(scale_problem(1 << 20), Config({"BLOCK": 1024}), "H200")
    features = launch_features(reading.profile, reading.work, reading.target)
    places = features["programs_per_sm"] * load_target("H200").sms
    assert features["waves"] == features["programs"] / places
    assert features["tail"] == pytest.approx(1 - features["programs"] / places)
