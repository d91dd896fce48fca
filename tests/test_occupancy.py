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


@pytest.mark.parametrize(
    ("shared", "programs"),
    [
        (232448, 1),  # the most a program may have: 227 KiB, and 1 KiB reserved
        (232449, 0),
        (115712, 2),  # (115712 + 1024) x 2 = 233472, all the SM has
        (115713, 1),  # rounded up to 116864, of which 2 are too many
        (113664, 2),
        (0, 32),  # the reserve alone would allow 228; block slots allow 32
    ],
)
def test_shared_limit_by_hand(shared: int, programs: int) -> None:
    """Each program takes its shared memory and 1 KiB more, in units of 128 bytes."""
    assert occupancy(load_target("H200"), 1, 16, shared).programs_per_sm == programs


@pytest.mark.parametrize(
    ("name", "num_warps", "registers", "shared", "limits"),
    [
        ("A100", 8, 40, 0, (6, 8, 32, 164, 6)),
        ("A100", 4, 16, 2817, (16, 16, 32, 42, 32)),
        ("A100", 1, 168, 78520, (2, 64, 32, 2, 12)),
        ("B200", 4, 16, 18241, (12, 16, 32, 12, 32)),
        ("B200", 5, 152, 47015, (2, 12, 32, 4, 2)),
        ("B200", 32, 64, 198362, (1, 2, 32, 1, 1)),
        ("H100", 12, 255, 142054, (0, 5, 32, 1, 0)),
        ("H100", 4, 32, 98708, (2, 16, 32, 2, 16)),
        ("H100", 2, 32, 0, (32, 32, 32, 228, 32)),
        ("H200", 2, 255, 18288, (4, 32, 32, 12, 4)),
        ("H200", 5, 128, 35904, (3, 12, 32, 6, 3)),
        ("L4", 1, 128, 42026, (2, 48, 24, 2, 16)),
        ("L4", 2, 128, 1932, (8, 24, 24, 33, 8)),
        ("L4", 5, 224, 67024, (1, 9, 24, 1, 1)),
        ("RTX4090", 12, 64, 0, (2, 4, 24, 100, 2)),
        ("RTX4090", 3, 104, 68398, (1, 16, 24, 1, 5)),
        ("RTX4090", 1, 128, 18327, (5, 48, 24, 5, 16)),
        ("RTX5090", 12, 104, 83114, (1, 4, 24, 1, 1)),
        ("RTX5090", 1, 32, 0, (24, 48, 24, 100, 64)),
        ("RTX5090", 2, 64, 39470, (2, 24, 24, 2, 16)),
    ],
)
def test_agrees_with_the_cuda_toolkit(
    name: str, num_warps: int, registers: int, shared: int, limits: tuple[int, ...]
) -> None:
    """Programs and each limit equal what cuda_occupancy.h of CUDA 13.0 computes."""
    found = occupancy(load_target(name), num_warps, registers, shared)
    assert limits == (
        found.programs_per_sm,
        found.limit_warps,
        found.limit_blocks,
        found.limit_shared,
        found.limit_registers,
    )


@pytest.mark.parametrize(
    ("name", "num_warps", "registers", "shared", "limiter"),
    [
        ("H200", 4, 168, 0, "registers"),
        ("H200", 8, 64, 200_000, "shared"),
        ("H200", 1, 32, 0, "blocks"),
        ("H200", 8, 32, 0, "none"),
        ("H200", 20, 32, 75_000, "warps"),  # 3 by warps, registers and shared memory
        ("H200", 8, 128, 115_000, "shared"),  # 2 by shared memory and by registers
    ],
)
def test_limiter(name: str, num_warps: int, registers: int, shared: int, limiter: str) -> None:
    """The resource that allows no further program is named, the hardest to relieve first."""
    assert occupancy(load_target(name), num_warps, registers, shared).limiter == limiter


@pytest.mark.parametrize(
    ("num_warps", "registers", "shared", "limiter", "numbers"),
    [
        (33, 16, 0, "warps", ("33", "1056", "1024")),
        (4, 32, 232_449, "shared", ("232449", "232448")),
        (4, 256, 0, "registers", ("256", "255")),
        (16, 200, 0, "registers", ("16", "200", "65536")),
    ],
)
def test_why_nothing_fits(
    num_warps: int, registers: int, shared: int, limiter: str, numbers: tuple[str, ...]
) -> None:
    """Where no program fits, one line says which resource and gives limit and demand."""
    found = occupancy(load_target("H200"), num_warps, registers, shared)
    assert (found.programs_per_sm, found.fraction) == (0, 0.0)
    assert found.limiter == limiter
    assert all(number in found.reason for number in numbers)
    assert "\n" not in found.reason


def test_limit_of_one_program_below_that_of_the_sm() -> None:
    """A program over its own shared memory limit does not fit, however much the SM has."""
    target = dataclasses.replace(load_target("H200"), shared_bytes_per_block=65_536)
    assert occupancy(target, 4, 32, 65_536).programs_per_sm == 3
    assert occupancy(target, 4, 32, 65_537).limiter == "shared"
    assert occupancy(target, 4, 32, 65_537).programs_per_sm == 0


@given(TARGETS, WARPS, st.integers(1, 299), SHARED)
def test_more_registers_never_fit_more(
    target: Target, num_warps: int, registers: int, shared: int
) -> None:
    """Occupancy does not rise with registers."""
    fewer = occupancy(target, num_warps, registers, shared)
    more = occupancy(target, num_warps, registers + 1, shared)
    assert more.programs_per_sm <= fewer.programs_per_sm


@given(TARGETS, WARPS, REGISTERS, SHARED, st.integers(1, 4096))
def test_more_shared_memory_never_fits_more(
    target: Target, num_warps: int, registers: int, shared: int, extra: int
) -> None:
    """Occupancy does not rise with shared memory."""
    fewer = occupancy(target, num_warps, registers, shared)
    more = occupancy(target, num_warps, registers, shared + extra)
    assert more.programs_per_sm <= fewer.programs_per_sm


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


@pytest.mark.parametrize(
    ("name", "num_warps", "registers", "shared", "scalars", "expected"),
    [
        # LLVM's getNumWavesPerEUWithNumVGPRs of gfx90a: 512 registers a SIMD, in eights.
        ("MI300X", 4, 64, 0, 0, (8, "none")),
        ("MI300X", 4, 72, 0, 0, (7, "registers")),
        ("MI300X", 4, 257, 0, 0, (1, "registers")),
        # 512 registers, the half of them AGPRs: one wavefront a SIMD.
        ("MI250X", 4, 512, 0, 0, (1, "registers")),
        ("MI250X", 4, 513, 0, 0, (0, "registers")),
        # 64 KiB of LDS in pieces of 512 bytes, 160 KiB in pieces of 1,280.
        ("MI300X", 4, 32, 32769, 0, (1, "shared")),
        ("MI300X", 4, 32, 65537, 0, (0, "shared")),
        ("MI355X", 4, 32, 40961, 0, (3, "shared")),
        # 16 barriers, and none for a workgroup of one wavefront.
        ("MI300X", 2, 16, 0, 0, (16, "none")),
        # 800 SGPRs a SIMD, in sixteens: 7 wavefronts of 112.
        ("MI300X", 4, 32, 0, 96, (8, "none")),
        ("MI300X", 4, 32, 0, 97, (7, "registers")),
    ],
)
def test_wavefronts_of_a_simd(
    name: str,
    num_warps: int,
    registers: int,
    shared: int,
    scalars: int,
    expected: tuple[int, str],
) -> None:
    """A SIMD of CDNA has 8 slots, one file of 512 VGPRs and AGPRs, and 800 SGPRs."""
    found = occupancy(load_target(name), num_warps, registers, shared, scalars)
    assert (found.programs_per_sm, found.limiter) == expected


def test_bad_arguments_are_named() -> None:
    """An argument that is no whole number in range is refused by name, in one line."""
    for name in ("num_warps", "registers_per_thread", "shared_bytes"):
        for value in (None, True, 4.0, -1):
            arguments = {"num_warps": 4, "registers_per_thread": 32, "shared_bytes": 0, name: value}
            with pytest.raises(InputError, match=rf"^{name} must be a whole number of at least"):
                occupancy(load_target("H200"), **arguments)  # type: ignore[arg-type]
