"""What L1 still holds, and what the IR asks for of what threads move."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

from asmtune.core.config import Config
from asmtune.core.problem import Problem
from asmtune.predict.features.catalog import LaunchReading
from asmtune.predict.features.cycles import Locality, program_cycles
from asmtune.predict.features.execution import executions
from tests.launch_kernels import Launch, pointers


@triton.jit
def centred(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    """Subtract a row's mean: reads the row twice, block by block."""
    row = tl.program_id(0) * N
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        total += tl.load(x_ptr + row + start + tl.arange(0, BLOCK))
    mean = tl.sum(total, 0) / N
    for start in range(0, N, BLOCK):
        at = row + start + tl.arange(0, BLOCK)
        tl.store(y_ptr + at, tl.load(x_ptr + at) - mean)


def rows(width: int, programs: int = 4096, machine: str = "H200") -> tuple[Problem, Config, str]:
    """A launch of `centred` in fp32."""
    arguments = {**pointers(torch.float32, "x_ptr", "y_ptr", extent=1 << 28), "N": width}
    return Problem(centred, arguments, (programs,)), Config({"BLOCK": 1024}), machine


def locality(reading: LaunchReading) -> Locality:
    """Analyse a launch's memory."""
    runs = executions(reading.profile, reading.work)
    return Locality.of(reading.profile, runs, reading.work, reading.target)


def test_a_row_read_twice_hits(launch: Launch) -> None:
    """Where the resident programs' rows fit into L1, half of the reads hit; the rest misses."""
    reading = launch(*rows(1024))
    assert set(locality(reading).hits.values()) == {0.5}
    # One row read and one written, though the text reads it twice.
    assert reading.cycles.l2_bytes == pytest.approx(2 * 1024 * 4)


@pytest.mark.slow(seconds=1)
@settings(max_examples=25)
@given(width=st.sampled_from([1 << n for n in range(10, 18)]), programs=st.integers(1, 1 << 16))
def test_hits_are_shares(launch: Launch, width: int, programs: int) -> None:
    """For any launch hits and shares lie between 0 and 1, and hits cut L2's bytes by just that."""
    reading = launch(*rows(width, programs))
    lines = locality(reading)
    for found in (lines.hits, lines.shares):
        assert all(0.0 <= value <= 1.0 for value in found.values())
    runs = executions(reading.profile, reading.work)
    again = program_cycles(reading.profile, runs, reading.work, reading.target)
    (hits,) = set(lines.hits.values())
    assert again.l2_bytes == pytest.approx((2 * (1.0 - hits) + 1) * width * 4)
