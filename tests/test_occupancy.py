"""Occupancy against NVIDIA's own calculator, and what follows from it."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asmtune.base.errors import InputError
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import load_target, target_names
from asmtune.core.occupancy import occupancy

TARGETS = st.sampled_from([load_target(name) for name in target_names()])
WARPS = st.integers(1, 40)
REGISTERS = st.integers(1, 300)
SHARED = st.integers(0, 240_000)


SHARED_LIMITS = {232448: 1, 232449: 0, 115712: 2, 115713: 1, 113664: 2, 0: 32}
"""Programs of an H200 by the bytes of each: 227 KiB at most, 1 KiB more is reserved, in units of
128 bytes; the reserve alone would allow 228, and block slots allow 32."""

TOOLKIT = """
A100 8 40 0 6 8 32 164 6
A100 4 16 2817 16 16 32 42 32
A100 1 168 78520 2 64 32 2 12
B200 5 152 47015 2 12 32 4 2
B200 32 64 198362 1 2 32 1 1
H100 12 255 142054 0 5 32 1 0
H100 4 32 98708 2 16 32 2 16
H200 2 255 18288 4 32 32 12 4
L4 1 128 42026 2 48 24 2 16
L4 5 224 67024 1 9 24 1 1
RTX4090 12 64 0 2 4 24 100 2
RTX4090 1 128 18327 5 48 24 5 16
RTX5090 12 104 83114 1 4 24 1 1
RTX5090 1 32 0 24 48 24 100 64
"""
"""Warps, registers and bytes of a program; programs that fit, and that warps, blocks, shared memory
and registers allow, as cuda_occupancy.h of CUDA 13.0 computes them."""


def test_agrees_with_the_cuda_toolkit() -> None:
    """Programs and each limit equal what NVIDIA's own calculator gives."""
    for line in TOOLKIT.split("\n")[1:-1]:
        name, *numbers = line.split()
        warps, registers, shared, *limits = map(int, numbers)
        one = occupancy(load_target(name), warps, registers, shared)
        found = [one.programs_per_sm, one.limit_warps, one.limit_blocks]
        assert [*found, one.limit_shared, one.limit_registers] == limits, line
    for shared, programs in SHARED_LIMITS.items():
        assert occupancy(load_target("H200"), 1, 16, shared).programs_per_sm == programs


@pytest.mark.parametrize(
    ("num_warps", "registers", "shared", "limiter", "numbers"),
    [
        (4, 168, 0, "registers", ()),
        (8, 64, 200_000, "shared", ()),
        (1, 32, 0, "blocks", ()),
        (8, 32, 0, "none", ()),
        (20, 32, 75_000, "warps", ()),  # 3 by warps, registers and shared memory
        (8, 128, 115_000, "shared", ()),  # 2 by shared memory and by registers
        (33, 16, 0, "warps", ("33", "1056", "1024")),
        (4, 32, 232_449, "shared", ("232449", "232448")),
        (4, 256, 0, "registers", ("256", "255")),
        (16, 200, 0, "registers", ("16", "200", "65536")),
    ],
)
def test_limiter(
    num_warps: int, registers: int, shared: int, limiter: str, numbers: tuple[str, ...]
) -> None:
    """The resource that allows no further program is named, and its numbers where none fits."""
    found = occupancy(load_target("H200"), num_warps, registers, shared)
    assert found.limiter == limiter
    assert (found.programs_per_sm == 0) == bool(numbers)
    assert all(number in found.reason for number in numbers)


def test_limit_of_one_program_below_that_of_the_sm() -> None:
    """A program over its own shared memory limit does not fit, however much the SM has."""
    target = dataclasses.replace(load_target("H200"), shared_bytes_per_block=65_536)
    assert occupancy(target, 4, 32, 65_536).programs_per_sm == 3
    assert occupancy(target, 4, 32, 65_537).programs_per_sm == 0


@given(TARGETS, WARPS, REGISTERS, SHARED, st.integers(0, 40), st.integers(0, 4096))
def test_more_demand_never_fits_more(
    target: Target, num_warps: int, registers: int, shared: int, more: int, extra: int
) -> None:
    """Occupancy does not rise with registers or shared memory."""
    fewer = occupancy(target, num_warps, registers, shared)
    greedy = occupancy(target, num_warps, registers + more, shared + extra)
    assert greedy.programs_per_sm <= fewer.programs_per_sm


@given(TARGETS, WARPS, REGISTERS, SHARED)
def test_what_is_resident_fits(target: Target, num_warps: int, registers: int, shared: int) -> None:
    """The resident programs together stay within every resource of the SM."""
    found = occupancy(target, num_warps, registers, shared)
    programs = found.programs_per_sm
    assert programs * num_warps <= target.max_warps_per_sm
    # A workgroup of one wavefront takes none of an AMD device's 16 barriers.
    alone = target.backend == "hip" and num_warps == 1
    assert programs <= (32 if alone else target.max_blocks_per_sm)
    assert programs * num_warps * registers * target.warp_size <= target.registers_per_sm
    reserved = target.shared_reserved_bytes_per_block
    assert programs * (shared + reserved) <= target.shared_bytes_per_sm
    assert 0 <= found.fraction <= 1
    assert bool(found.reason) == (programs == 0)


# Warps, registers, bytes of LDS and SGPRs of a workgroup; workgroups that fit, and what limits.
WAVEFRONTS = """
MI300X 4 64 0 0 8 none
MI300X 4 72 0 0 7 registers
MI300X 4 257 0 0 1 registers
MI250X 4 512 0 0 1 registers
MI250X 4 513 0 0 0 registers
MI300X 4 32 32769 0 1 shared
MI300X 4 32 65537 0 0 shared
MI355X 4 32 40961 0 3 shared
MI300X 2 16 0 0 16 none
MI300X 4 32 0 96 8 none
MI300X 4 32 0 97 7 registers
"""


def test_wavefronts_of_a_simd() -> None:
    """A SIMD of CDNA has 8 slots, one file of 512 VGPRs and AGPRs in eights, and 800 SGPRs.

    LDS is 64 KiB in pieces of 512 bytes, or 160 KiB in pieces of 1,280; there are 16 barriers, and
    a workgroup of one wavefront takes none. LLVM's AMDGPU backend computes the same.
    """
    for line in WAVEFRONTS.split("\n")[1:-1]:
        name, *numbers, limiter = line.split()
        *demand, programs = map(int, numbers)
        found = occupancy(load_target(name), *demand)
        assert (found.programs_per_sm, found.limiter) == (programs, limiter), line


def test_bad_arguments_are_named() -> None:
    """An argument that is no whole number in range is refused by name, in one line."""
    for name in ("num_warps", "registers_per_thread", "shared_bytes"):
        for value in (None, True, 4.0, -1):
            arguments = {"num_warps": 4, "registers_per_thread": 32, "shared_bytes": 0, name: value}
            with pytest.raises(InputError, match=rf"^{name} must be a whole number of at least"):
                occupancy(load_target("H200"), **arguments)  # type: ignore[arg-type]
