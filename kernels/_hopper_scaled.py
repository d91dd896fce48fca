"""Product of FP8 matrices with scales in Gluon for Hopper: a warp loads, two warpgroups multiply.

Partitions, ring and barriers are those of `_hopper_gemm`: each warpgroup has half of a tile's
rows, or, if PINGPONG, every other tile. A stage has 128 of K. What is new are the sums over K:

- FAST: the tensor core sums all of K, in some 14 bits, with a product always in flight.
- Else it sums 128 of K at a time, which are scaled and added in fp32 by other units. The products
  of the other warpgroup run meanwhile. Sums of a tile of 256 columns would not fit in registers
  twice, so that its left and right halves are multiplied one after the other.

Where groups of K have scales, those of rows are loaded a step ahead, those of columns while the
product runs, one number for 128 columns. Scales that serve all of K are applied to the sums.

With few rows, time goes into reading B. Tiles of few columns make as many programs as there are
multiprocessors, or PER_SM times as many, so that the waits of some overlap with work of others.

Shapes: A is (M, K), B (N, K), C (M, N); scales as in `scaled_matmul`, in groups of EXTENTS.
Dtypes: e4m3 and e5m2, in any pair; C is bf16, fp16 or fp32; scales are fp32.
Layout: dense rows at multiples of 16 bytes; any strides of scales.
Source: as of `_hopper_gemm`; sums apart after DeepSeek-V3, arXiv:2412.19437, 3.3.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
)

from asmtune.core.config import Config
from asmtune.core.keys.buckets import pow2
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from asmtune.kernels._common import processors
from asmtune.kernels._fp8 import NAMES
from asmtune.kernels._hopper import (
    barriers_of,
    described,
    refuse_others,
    ring_of,
    set_block,
)
from asmtune.kernels._hopper_scaled_sums import (
    BLOCK_K,
    CONSUMERS,
    halved,
    load_scales,
    load_tiles,
    sum_apart,
    sum_in_tensor_core,
    tile_origin,
    write_pieces,
)
from asmtune.kernels._scaled import EXTENTS
from asmtune.runtime.call_trace import sets_blocks
from asmtune.runtime.decorator import asm_autotune

REGISTERS = gl.constexpr((240, 104, 72))
"""Registers of a thread that multiplies, for 1, 2 and 3 programs of a multiprocessor.

Threads of warps that load have 24.
"""

SHARED = gl.constexpr((226 * 1024, 112 * 1024, 74 * 1024))
"""Bytes of a program: of 228 KiB, 1 KiB of the driver's for each."""

PIECE = gl.constexpr(128)
"""Columns that are written at once, and whose sums are scaled at once."""


@gluon.jit
def _multiply_tiles(
    c_desc, scales, bias_ptr, rings, c_tiles, sizes, WHO: gl.constexpr, BLOCK: gl.constexpr,
    GROUP_M: gl.constexpr, GROUPS: gl.constexpr, FAST: gl.constexpr,
):  # fmt: skip
    """Compute this warpgroup's part of the program's tiles, or every other tile."""
    M, N, K, all_tiles = sizes
    STAGES: gl.constexpr = rings[2].shape[0]
    PARTS: gl.constexpr = rings[0].shape[0] // STAGES
    ROWS: gl.constexpr = rings[0].shape[1]
    COLUMNS: gl.constexpr = c_tiles.shape[2]
    SHAPE: gl.constexpr = (ROWS, COLUMNS, BLOCK[1] // COLUMNS)
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK[1], 32])
    PIECE_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLUMNS, 32])
    # Beside two sums, or with a scale for each column of a large tile, registers would not do.
    AHEAD: gl.constexpr = FAST and (GROUPS[1] != 1 or ROWS * BLOCK[1] <= 64 * 128)
    steps = gl.cdiv(K, BLOCK_K)
    first, every = gl.program_id(0), gl.num_programs(0)
    at = gl.to_tensor(0)
    turn = gl.to_tensor(1 if WHO == 0 else 0)
    if PARTS == 1:
        # Each warpgroup passes over the steps of the other's tiles.
        at += WHO * steps
        first += WHO * every
        every *= CONSUMERS
    for index in range(first, all_tiles, every):
        row, column = tile_origin(index, M, N, BLOCK[0], BLOCK[1], GROUP_M)
        origin = (row + (WHO * ROWS if PARTS > 1 else 0), column)
        of_all = (None, None, None)
        if AHEAD:
            of_all = load_scales(scales, sizes, origin, GROUPS, SHAPE, PIECE_LAYOUT)
        if PARTS == 1:
            mbarrier.wait(rings[4].index(WHO), turn)
            turn ^= 1
        stage, phase = at % STAGES, at // STAGES & 1
        if FAST:
            acc = sum_in_tensor_core(rings, stage, phase, steps, WHO, LAYOUT)
            pieces = (acc,) if SHAPE[2] == 1 else halved(acc)
        else:
            pieces = sum_apart(
                rings, scales, sizes, origin, stage, phase, steps, WHO, PIECE_LAYOUT, GROUPS
            )
        at += steps * (CONSUMERS if PARTS == 1 else 1)
        results = (pieces[: SHAPE[2]], of_all, scales, sizes, c_desc, c_tiles, bias_ptr)
        write_pieces(*results, origin, WHO, GROUPS, AHEAD, PIECE_LAYOUT)
    tma.store_wait(0)


@gluon.jit
def kernel(
    a_desc,
    b_desc,
    c_desc,
    scale_a_ptr,
    scale_b_ptr,
    bias_ptr,
    M,
    N,
    K,
    stride_sam,
    stride_sak,
    stride_sbk,
    stride_sbn,
    GROUP_A: gl.constexpr,
    GROUP_B: gl.constexpr,
    GROUP_K: gl.constexpr,
    FAST: gl.constexpr,
    SIZE_C: gl.constexpr,  # noqa: ARG001 (of the space, as SMS is of the grid)
    SMS: gl.constexpr,  # noqa: ARG001
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    PINGPONG: gl.constexpr,
    STAGES: gl.constexpr,
    PER_SM: gl.constexpr,
    GROUP_M: gl.constexpr,
):
    """Compute every so many-th tile of C; PER_SM: programs of a multiprocessor."""
    BLOCK: gl.constexpr = (BLOCK_M, BLOCK_N)
    GROUPS: gl.constexpr = (GROUP_A, GROUP_B, GROUP_K)
    PARTS: gl.constexpr = 1 if PINGPONG else CONSUMERS
    PIECES: gl.constexpr = BLOCK_N // b_desc.block_type.shape[0]
    # Both halves of a result have a place of their own where shared memory has room.
    OPERANDS: gl.constexpr = (BLOCK_M + BLOCK_N) * BLOCK_K * STAGES
    HALVES: gl.constexpr = BLOCK_N // c_desc.block_type.shape[1]
    ROOM: gl.constexpr = SHARED[PER_SM - 1] - OPERANDS >= 2 * CONSUMERS * c_desc.block_type.nbytes
    BUFFERS: gl.constexpr = 2 if HALVES == 2 and ROOM else 1
    c_tiles = ring_of(c_desc, CONSUMERS * BUFFERS)
    rings = (
        ring_of(a_desc, STAGES * PARTS),
        ring_of(b_desc, STAGES * PIECES),
        barriers_of(STAGES, 1),
        barriers_of(STAGES, PARTS),
        barriers_of(CONSUMERS, 1),
    )
    fence_async_shared()  # so that copies see the barriers
    sizes = (M, N, K, gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N))
    operands = (a_desc, b_desc)
    scales = ((scale_a_ptr, stride_sam, stride_sak), (scale_b_ptr, stride_sbn, stride_sbk))
    TAKEN: gl.constexpr = REGISTERS[PER_SM - 1]
    gl.warp_specialize(
        [
            (
                _multiply_tiles,
                (c_desc, scales, bias_ptr, rings, c_tiles, sizes, 0, BLOCK, GROUP_M, GROUPS, FAST),
            ),
            (
                _multiply_tiles,
                (c_desc, scales, bias_ptr, rings, c_tiles, sizes, 1, BLOCK, GROUP_M, GROUPS, FAST),
            ),
            (load_tiles, (operands, rings, sizes, BLOCK, GROUP_M)),
        ],
        [4, 1],
        [TAKEN, 24],
    )


OUTPUTS = ("c_desc",)

DTYPES = ("fp8e4nv", "fp8e5")
"""Dtypes of A; B is e4m3."""

RESULTS = (torch.bfloat16, torch.float16, torch.float32)
"""Dtypes of C."""

SHAPES = (
    {"M": 4096, "N": 4096, "K": 4096, "GROUP_A": 1, "GROUP_B": 128, "GROUP_K": 128},
    {"M": 4096, "N": 4096, "K": 4096, "GROUP_A": 1, "GROUP_B": 1, "GROUP_K": 0},
    {"M": 16, "N": 4096, "K": 4096, "GROUP_A": 0, "GROUP_B": 0, "GROUP_K": 0},
)

_AT_START = (168, 80, 56)
"""Registers of a thread, as REGISTERS: 65536 over twelve warps of each program, in units of 8."""

_AXES = ("BLOCK_M", "BLOCK_N", "PINGPONG", "PER_SM", "STAGES", "GROUP_M")
_TILES = (  # the first four, then STAGES
    (128, 256, False, 1, (3, 4)),
    (128, 128, False, 1, (4, 5, 6)),
    (128, 64, False, 1, (6, 8)),
    (128, 128, True, 1, (4, 5, 6)),
    (64, 256, True, 1, (4,)),
    (64, 128, True, 1, (6, 8)),
    (64, 64, True, 1, (8, 12)),
    (64, 32, True, 1, (12, 16)),
    (64, 64, True, 2, (5, 6)),
    (64, 32, True, 2, (8,)),
    (64, 16, True, 2, (8, 10)),
    (64, 32, True, 3, (5,)),
    (64, 16, True, 3, (6,)),
)


@sets_blocks
def set_blocks(values: Mapping[str, Any]) -> None:
    """Set what a config's descriptors copy at a time: its `pre_hook`."""
    rows = values["BLOCK_M"] if values["PINGPONG"] else values["BLOCK_M"] // CONSUMERS.value
    piece = min(values["BLOCK_N"], PIECE.value)
    set_block(values["a_desc"], rows, BLOCK_K.value)
    set_block(values["b_desc"], values["BLOCK_N"] if values["FAST"] else piece, BLOCK_K.value)
    set_block(values["c_desc"], rows, piece)


def space() -> Space:
    """List tiles with their stages: as many as shared memory holds, or nearly so."""
    configs = [
        Config(
            dict(zip(_AXES, (m, n, pingpong, per_sm, stages, group), strict=True)),
            num_warps=4,
            maxnreg=_AT_START[per_sm - 1],
            pre_hook=set_blocks,
        )
        for m, n, pingpong, per_sm, rings in _TILES
        for stages in rings
        for group in ((8, 16) if m == 128 else (8,))
    ]
    usual = (128, 128)
    default = next(c for c in configs if (c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) == usual)
    return (
        Space.from_configs(configs, default=default)
        .where("stages and results fit in shared memory", _fits_shared)
        .where("sums and products fit in a thread's registers", _fits_threads)
        .where("results of 32 bits, scales and biases of columns do too", _fits_results)
    )


def _fits_shared(
    BLOCK_M: int, BLOCK_N: int, PINGPONG: bool, STAGES: int, PER_SM: int, SIZE_C: int
) -> bool:
    rows = 2 * BLOCK_M if PINGPONG else BLOCK_M
    results = rows * min(BLOCK_N, PIECE.value) * SIZE_C
    return (BLOCK_M + BLOCK_N) * BLOCK_K.value * STAGES + results <= SHARED.value[PER_SM - 1]


def _fits_threads(
    BLOCK_M: int, BLOCK_N: int, PINGPONG: bool, PER_SM: int, GROUP_B: int, GROUP_K: int, FAST: bool
) -> bool:
    if FAST:
        return True
    rows = BLOCK_M if PINGPONG else BLOCK_M // CONSUMERS.value
    piece = min(BLOCK_N, PIECE.value)
    # Four threads share a row, whose columns' scales come with addresses of 64 bits.
    columns = 3 * BLOCK_N // 4 if GROUP_B == 1 and GROUP_K else 0
    return rows * (BLOCK_N + piece) // 128 + columns + 32 <= REGISTERS.value[PER_SM - 1]


def _fits_results(BLOCK_N: int, GROUP_B: int, FAST: bool, SIZE_C: int) -> bool:
    return FAST or PIECE.value >= BLOCK_N or GROUP_B != 1 or SIZE_C < 4


def grid(values: Mapping[str, Any]) -> tuple[int]:
    """Give the grid: as many programs as the device holds, or one a tile if these are fewer."""
    tiles = triton.cdiv(values["M"], values["BLOCK_M"])
    tiles *= triton.cdiv(values["N"], values["BLOCK_N"])
    return (min(tiles, values["SMS"] * values["PER_SM"]),)


def arguments(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Give a launch's arguments by name, from those of a launch of `scaled_matmul`'s kernel."""
    from asmtune.kernels import scaled_matmul

    a, b, scale_a, scale_b, bias = scaled_matmul.operands_of(plain)
    c = plain["c_ptr"][0]
    same = ("M", "N", "K", "stride_sam", "stride_sak", "stride_sbk", "stride_sbn", *EXTENTS)
    return {
        "a_desc": described(a),
        "b_desc": described(b.mT),
        "c_desc": described(c),
        "scale_a_ptr": scale_a,
        "scale_b_ptr": scale_b,
        "bias_ptr": bias,
        **{name: plain[name] for name in same},
        "FAST": bool(plain["FAST"]) and plain["GROUP_K"] == 0,
        "SIZE_C": c.element_size(),
        "SMS": processors(a.device),
    }


def in_place_of_plain(plain: Mapping[str, Any]) -> None:
    """Compute what `scaled_matmul`'s kernel does from the arguments of its launch by name.

    Raises:
        ValueError: the GPU, a dtype, a layout or a group is not one that the kernel takes.
    """
    from asmtune.kernels import scaled_matmul

    a, b, *_ = scaled_matmul.operands_of(plain)
    for name, extents in EXTENTS.items():
        if plain[name] not in extents:
            raise ValueError(f"multiply: {name} is {plain[name]}; it must be one of {extents}")
    refuse_others("multiply", {"a": a, "b": b.mT}, tuple(NAMES))
    refuse_others("multiply", {"c": plain["c_ptr"][0]}, RESULTS)
    tuned[grid](**arguments(plain))


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch of one product of random matrices; device "meta" needs no GPU."""
    from asmtune.kernels import scaled_matmul

    plain = scaled_matmul.problem(shape, dtype, device).arguments
    given = arguments({**plain, "FAST": shape.get("FAST", plain["FAST"])})
    known_too = {name: given[name] for name in (*EXTENTS, "FAST", "SIZE_C", "SMS")}
    return Problem(kernel, given, grid, {**shape, **known_too}, "hopper_scaled")


def reference(values: Mapping[str, Any]) -> torch.Tensor:
    """Compute C in float64 from a problem's arguments."""
    from asmtune.kernels import scaled_matmul

    a, b = values["a_desc"].base.double(), values["b_desc"].base.mT.double()
    scales = (values[f"scale_{name}_ptr"].double() for name in "ab")
    return scaled_matmul.baseline(a, b, *scales, bias=values["bias_ptr"])


tuned = asm_autotune(space=space, key=[pow2("M"), "N", "K", *EXTENTS, "FAST"])(kernel)
