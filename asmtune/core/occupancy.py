"""Occupancy: the programs that fit on an SM at once.

The arithmetic is NVIDIA's own, from `cuda_occupancy.h` in the CUDA Toolkit, which
`cudaOccupancyMaxActiveBlocksPerMultiprocessor` agrees with. A Triton program is one
CUDA thread block. Not modelled: clusters, named barriers, and a shared memory carveout
smaller than the device's largest.

On an AMD device a program is a workgroup. Each SIMD holds wavefronts as its VGPRs (AGPRs are of
the same file), its SGPRs and its slots allow, as LLVM's AMDGPU backend computes "Occupancy"; LDS
and barriers are the compute unit's.
"""

from __future__ import annotations

from dataclasses import dataclass

from asmtune.base.errors import InputError
from asmtune.core.hardware.model import Target


@dataclass(frozen=True, slots=True)
class Occupancy:
    """The programs that fit on one SM at once, and their limits.

    Attributes:
        programs_per_sm: Programs resident at once; 0 if the kernel cannot be launched.
        limiter: The resource that allows no further program: "warps", "blocks", "shared" or
            "registers"; of several, the first in this order, since relieving a later one would
            gain nothing. "none" where every warp slot is in use.
        reason: Why no program fits, with the numbers; empty if one does.
        limit_warps, limit_blocks: Programs that the warp slots and the block slots allow.
        limit_shared, limit_registers: Programs that the shared memory and the registers allow.
        fraction: Resident warps over the SM's maximum.
    """

    programs_per_sm: int
    limiter: str
    reason: str
    limit_warps: int
    limit_blocks: int
    limit_shared: int
    limit_registers: int
    fraction: float


def occupancy(
    target: Target,
    num_warps: int,
    registers_per_thread: int,
    shared_bytes: int,
    scalar_registers: int = 0,
) -> Occupancy:
    """Compute how many programs of a kernel one SM holds at once.

    Args:
        target: The device.
        num_warps: Warps per program, at least 1.
        registers_per_thread: As the compiler reports it, at least 1.
        shared_bytes: Shared memory a program asks for, static and dynamic, without the
            driver's own reserve.
        scalar_registers: SGPRs of a wavefront, for an AMD device.

    Raises:
        InputError: An argument is not a whole number or too small.
    """
    _check_whole("num_warps", num_warps, 1)
    _check_whole("registers_per_thread", registers_per_thread, 1)
    _check_whole("shared_bytes", shared_bytes, 0)
    limits = {
        "warps": _warp_limit(target, num_warps),
        "blocks": _block_limit(target, num_warps),
        "shared": _shared_limit(target, shared_bytes),
        "registers": _register_limit(target, num_warps, registers_per_thread),
    }
    if scalar_registers:
        limits["registers"] = min(
            limits["registers"], _scalar_limit(target, num_warps, scalar_registers)
        )
    limiter = min(limits, key=lambda resource: limits[resource])
    programs = limits[limiter]
    reasons = _reasons(target, num_warps, registers_per_thread, shared_bytes)
    active_warps = programs * num_warps
    return Occupancy(
        programs_per_sm=programs,
        limiter="none" if active_warps == target.max_warps_per_sm else limiter,
        reason="" if programs else reasons[limiter],
        limit_warps=limits["warps"],
        limit_blocks=limits["blocks"],
        limit_shared=limits["shared"],
        limit_registers=limits["registers"],
        fraction=active_warps / target.max_warps_per_sm,
    )


def _reasons(
    target: Target, num_warps: int, registers_per_thread: int, shared_bytes: int
) -> dict[str, str]:
    return {
        "warps": f"{num_warps} warps are {num_warps * target.warp_size} threads;"
        f" a program may have {target.max_threads_per_block}",
        "shared": f"{shared_bytes} bytes of shared memory;"
        f" a program may have {target.shared_bytes_per_block}",
        "registers": f"{num_warps} warps at {registers_per_thread} registers a thread;"
        f" a thread may have {target.max_registers_per_thread},"
        f" an SM has {target.registers_per_sm}",
    }


def _warp_limit(target: Target, num_warps: int) -> int:
    """Count whole programs in the warp slots, as `cudaOccMaxBlocksPerSMWarpsLimit`."""
    if num_warps * target.warp_size > target.max_threads_per_block:
        return 0
    return target.max_warps_per_sm // num_warps


def _block_limit(target: Target, num_warps: int) -> int:
    """Count block slots; AMD's are barriers, and a workgroup of one wavefront needs none."""
    if target.backend == "hip" and num_warps == 1:
        return target.max_warps_per_sm
    return target.max_blocks_per_sm


def _scalar_limit(target: Target, num_warps: int, scalar_registers: int) -> int:
    """Count programs by the SGPRs of their wavefronts, each from one SIMD's own file."""
    file, unit = target.scalar_registers_per_partition, target.scalar_allocation_unit
    if file is None or unit is None:
        return target.max_warps_per_sm
    per_partition = file // _round_up(scalar_registers, unit)
    return per_partition * target.warp_allocation_granularity // num_warps


def _register_limit(target: Target, num_warps: int, registers_per_thread: int) -> int:
    """Count programs by registers, as `cudaOccMaxBlocksPerSMRegsLimit`.

    A warp gets its registers in whole units and from one of the SM's equal partitions,
    so that what is left over in each is lost. The header's further check of a program
    against the registers of a block adds nothing where that limit is the SM's.
    """
    if registers_per_thread > target.max_registers_per_thread:
        return 0
    per_warp = _round_up(registers_per_thread * target.warp_size, target.register_allocation_unit)
    partitions = target.warp_allocation_granularity
    warps_per_partition = target.registers_per_sm // partitions // per_warp
    return warps_per_partition * partitions // num_warps


def _shared_limit(target: Target, shared_bytes: int) -> int:
    """Count programs by shared memory with the driver's reserve, as NVIDIA's SmemLimit."""
    if shared_bytes > target.shared_bytes_per_block:
        return 0
    taken = _round_up(
        shared_bytes + target.shared_reserved_bytes_per_block, target.shared_allocation_unit_bytes
    )
    return target.shared_bytes_per_sm // taken if taken else _block_limit(target, 1)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _check_whole(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, not {value!r}")
