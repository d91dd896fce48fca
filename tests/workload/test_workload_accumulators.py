"""Registers of a product's accumulators, against what the compiler does with fewer."""

from __future__ import annotations

import pytest

from asmtune.base.settings import Settings
from asmtune.compile.lower import Lowering, LowerRequest
from asmtune.compile.pool import compile_one
from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Artifact, Failure
from asmtune.predict.features.reader import ProfileReader
from asmtune.predict.prune.caps import accumulator_registers
from tests.sample_kernels import product_problem


def built(problem: Problem, config: Config, name: str, settings: Settings) -> Artifact:
    """A config compiled for a target by name."""
    request = Lowering(problem, load_target(name), 60).request(config)
    assert isinstance(request, LowerRequest), request
    artifact = compile_one(request, settings)
    assert not isinstance(artifact, Failure), artifact
    return artifact


def tile(m: int, n: int, warps: int) -> Config:
    """A config of `product`."""
    return Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": 32}, num_warps=warps, num_stages=2)


@pytest.mark.parametrize(
    ("name", "m", "n", "warps", "accumulators"),
    [
        ("H200", 128, 64, 4, 64),  # wgmma
        ("H200", 64, 128, 8, 32),
        ("H200", 64, 128, 2, 128),  # mma.sync: no whole warpgroup
        ("A100", 128, 128, 8, 64),
        ("A100", 16, 16, 4, 4),  # 2 of 4 warps hold copies
    ],
)
def test_accumulators(
    name: str, m: int, n: int, warps: int, accumulators: int, settings: Settings
) -> None:
    """A thread holds its share of the tile, copies included, and 26 registers besides."""
    artifact = built(product_problem(), tile(m, n, warps), name, settings)
    assert accumulator_registers(artifact) == accumulators + 26


def test_less_spills(settings: Settings) -> None:
    """With the next lower cap a wgmma spills; with one not below what it needs it does not."""
    reader = ProfileReader(load_target("H200"))
    plain = built(product_problem(), tile(128, 64, 4), "H200", settings)
    needed = accumulator_registers(plain)
    spilled = {
        cap: reader(
            built(product_problem(), tile(128, 64, 4).with_cap(cap), "H200", settings)
        ).static["spill_words"]
        for cap in (needed // 8 * 8, -(-needed // 8) * 8)
    }
    below, above = spilled.values()
    assert below > 0
    assert above == 0
