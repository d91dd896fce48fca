"""Profiles: how a kernel's assembly is cut into segments, and what each holds."""

from __future__ import annotations

import pytest

from asmtune.core.config import Config
from asmtune.ir.asm.nvptx import OpClass
from asmtune.kernels import tiled_matmul as matmul
from tests.launch_kernels import Launch, persistent

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


@pytest.mark.parametrize(
    ("machine", "tile", "warps", "expected"),
    [
        # wgmma: K steps of 32 bytes x (64 rows of A + N of B) x 32 bytes, a group of 4 warps.
        ("H200", (64, 64, 32), 4, 2 * (64 + 64) * 32),
        ("H200", (128, 128, 64), 8, 4 * (64 + 128) * 32 * 2),
        # tcgen05 reads A and B once, whatever the warps.
        ("B200", (128, 128, 64), 8, 4 * (128 + 128) * 32),
        # mma.sync reads registers.
        ("A100", (128, 128, 64), 8, 0),
    ],
)
def test_operands(
    machine: str, tile: tuple[int, int, int], warps: int, expected: int, launch: Launch
) -> None:
    """Tensor instructions that read shared memory count the bytes of A and B."""
    problem = matmul.problem({"M": 256, "N": 256, "K": 512}, "fp16", "meta")
    values = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), tile, strict=True))
    config = Config({**values, "GROUP_M": 8}, num_warps=warps)
    segments = launch(problem, config, machine).profile.segments
    assert {segment.operand_bytes for segment in segments if segment.flops} == {expected}
    assert all(segment.operand_bytes == 0 for segment in segments if not segment.flops)
