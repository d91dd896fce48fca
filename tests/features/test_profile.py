"""Profiles: how a kernel's assembly is cut into segments, and what each holds."""

from __future__ import annotations

import pytest
import torch

from asmtune.core.config import Config
from asmtune.core.problem import Problem
from asmtune.ir.asm.nvptx import OpClass
from asmtune.kernels import tiled_matmul as matmul
from tests.launch_kernels import Launch, persistent, pointers, two_loops
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


@pytest.mark.parametrize("machine", MACHINES)
def test_parents_come_first(machine: str, launch: Launch) -> None:
    """The first segment is outside all loops, and each other one follows the one around it."""
    segments = launch(persistent(256, 512, 3, False), Config(TILE), machine).profile.segments
    outermost, *loops = segments
    assert (outermost.parent, outermost.depth, outermost.is_work) == (None, 0, True)
    for position, segment in enumerate(loops, 1):
        assert segment.parent is not None
        assert segment.parent < position
        assert segment.depth == segments[segment.parent].depth + segment.is_work


def test_traffic_has_lines(launch: Launch) -> None:
    """Traffic of different lines of the source stays apart."""
    arguments = {**pointers(torch.float32, "x_ptr", "y_ptr"), "first": 100, "second": 7}
    profile = launch(Problem(two_loops, arguments, (4,)), Config({"BLOCK": 512}), "H200").profile
    lines = {t.direction: t.line for segment in profile.segments for t in segment.traffic}
    assert lines["store"] - lines["load"] == 2
    for segment in profile.segments:
        assert {traffic.line for traffic in segment.traffic} <= segment.lines


def test_copies_go_to_shared_memory(launch: Launch) -> None:
    """What a pipelined product's loop loads goes to shared memory and no further."""
    profile = launch(product_problem(), Config(TILE), "A100").profile
    (loop,) = (segment for segment in profile.segments if segment.flops)
    copied = sum(t.bytes * n for t, n in loop.traffic.items() if t.copies)
    # A tile of A and one of B, 64 x 32 halves each, by 128 threads.
    assert copied * 128 == 2 * 64 * 32 * 2
    kinds = {(t.space, t.direction) for t in loop.traffic if not t.copies}
    assert kinds == {("shared", "load")}


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
