"""Matrix product in Gluon for Hopper: warps that load, warpgroups that multiply, tile after tile.

A program walks over tiles of C. One warp fills a ring of stages by the copy engine (TMA). Two
warpgroups multiply what it loads: each has half of a tile's rows, or, if PINGPONG, each has every
other tile, so that one writes a tile while the other multiplies. Tiles are written by the copy
engine while the next are multiplied.

Barriers, of which each stage has two:

- `full`: the loading warp arrives once and announces the bytes; it completes when they are there.
- `empty`: each warpgroup that reads the stage arrives once its product is done.

A wait for the n-th use of a stage waits for phase n of `full` and phase n - 1 of `empty`: a
barrier whose phase 0 is not complete lets a wait for the other parity pass, so that the first use
of a stage waits for nothing. A wait tells a phase by its parity alone, and must not be two phases
ahead. So the warpgroups of PINGPONG take turns: one waits for `full` only after the other has seen
the last stage of its tile. `turns` has a barrier for each, at which the other arrives.

Copies fill what lies outside a matrix with zeros and write nothing there, so that no extent has to
be a multiple of a tile's.

Shapes: A is (batch, M, K), B (batch, K, N), C (batch, M, N).
Dtypes: fp16, bf16. Accumulates in fp32.
Layout: A is dense along K, B along K or N; rows lie at multiples of 16 bytes, C's too.
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
    warpgroup_mma,
    warpgroup_mma_wait,
)

from asmtune.core.config import Config
from asmtune.core.dtypes import torch_dtype
from asmtune.core.keys.buckets import pow2
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from asmtune.kernels import _gemm
from asmtune.kernels._common import processors
from asmtune.kernels._hopper import (
    barriers_of,
    described,
    load_tile,
    next_stage,
    refuse_others,
    ring_of,
    set_block,
    stage_before,
    store_tile,
)
from asmtune.runtime.decorator import asm_autotune

tile_origin = gluon.jit(_gemm.tile_origin.fn)
activated = gluon.jit(_gemm.activated.fn)

CONSUMERS = gl.constexpr(2)
"""Warpgroups that multiply."""


@gluon.jit
def _load_tiles(
    operands, rings, sizes, BLOCK: gl.constexpr, GROUP_M: gl.constexpr, B_DENSE: gl.constexpr
):
    """Loads the blocks of every tile of this program, as stages become free."""
    a_desc, b_desc = operands
    a_ring, b_ring, full, empty, _ = rings
    M, N, K, tiles, all_tiles = sizes
    BLOCK_M: gl.constexpr = BLOCK[0]
    BLOCK_N: gl.constexpr = BLOCK[1]
    BLOCK_K: gl.constexpr = BLOCK[2]
    STAGES: gl.constexpr = b_ring.shape[0]
    PARTS: gl.constexpr = a_ring.shape[0] // STAGES
    ROWS: gl.constexpr = a_ring.shape[2]
    NBYTES: gl.constexpr = PARTS * a_desc.block_type.nbytes + b_desc.block_type.nbytes
    stage, phase = gl.to_tensor(0), gl.to_tensor(0)
    for index in range(gl.program_id(0), all_tiles, gl.num_programs(0)):
        z = index // tiles
        row, column = tile_origin(index % tiles, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        for at in range(0, K, BLOCK_K):
            mbarrier.wait(empty.index(stage), phase ^ 1)
            ready = full.index(stage)
            mbarrier.expect(ready, NBYTES)
            for part in gl.static_range(PARTS):
                target = a_ring.index(stage * PARTS + part)
                load_tile(a_desc, [z, row + part * ROWS, at], ready, target)
            if B_DENSE == "n":
                load_tile(b_desc, [z, at, column], ready, b_ring.index(stage))
            else:
                load_tile(b_desc, [z, column, at], ready, b_ring.index(stage))
            stage, phase = next_stage(stage, phase, STAGES)


@gluon.jit
def _multiply_steps(
    rings, stage, phase, steps, WHO: gl.constexpr, LAYOUT: gl.constexpr, BLOCK: gl.constexpr,
    B_DENSE: gl.constexpr,
):  # fmt: skip
    """Sums the products of a tile's blocks, from a stage of the ring on."""
    a_ring, b_ring, full, empty, turns = rings
    STAGES: gl.constexpr = b_ring.shape[0]
    PARTS: gl.constexpr = a_ring.shape[0] // STAGES
    PART: gl.constexpr = WHO if PARTS > 1 else 0
    ROWS: gl.constexpr = a_ring.shape[2]
    BLOCK_N: gl.constexpr = BLOCK[1]
    BLOCK_K: gl.constexpr = BLOCK[2]
    dtype: gl.constexpr = a_ring.dtype
    A_LAYOUT: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, BLOCK_K], dtype)
    B_BLOCK: gl.constexpr = [BLOCK_K, BLOCK_N] if B_DENSE == "n" else [BLOCK_N, BLOCK_K]
    B_LAYOUT: gl.constexpr = gl.NVMMASharedLayout.get_default_for(B_BLOCK, dtype)
    acc = gl.zeros([ROWS, BLOCK_N], gl.float32, LAYOUT)
    for step in range(steps):
        mbarrier.wait(full.index(stage), phase)
        a = a_ring.index(stage * PARTS + PART)._reinterpret(dtype, [ROWS, BLOCK_K], A_LAYOUT)
        b = b_ring.index(stage)._reinterpret(dtype, B_BLOCK, B_LAYOUT)
        if B_DENSE == "k":
            b = b.permute((1, 0))
        acc = warpgroup_mma(a, b, acc, is_async=True)
        # The product of the step before is done: its stage is free.
        acc = warpgroup_mma_wait(num_outstanding=1, deps=[acc])
        mbarrier.arrive(empty.index(stage_before(stage, STAGES)), count=1, pred=step > 0)
        stage, phase = next_stage(stage, phase, STAGES)
    if PARTS == 1:
        mbarrier.arrive(turns.index((WHO + 1) % CONSUMERS), count=1)
    acc = warpgroup_mma_wait(num_outstanding=0, deps=[acc])
    mbarrier.arrive(empty.index(stage_before(stage, STAGES)), count=1)
    return acc


@gluon.jit
def _halved(x):
    """Splits a tile into its left and its right columns, which stay in their threads."""
    return x.reshape(x.shape[0], 2, x.shape[1] // 2).permute(0, 2, 1).split()


@gluon.jit
def _multiply_tiles(
    c_desc, bias_ptr, rings, c_tiles, sizes, WHO: gl.constexpr, BLOCK: gl.constexpr,
    GROUP_M: gl.constexpr, B_DENSE: gl.constexpr, ACTIVATION: gl.constexpr,
):  # fmt: skip
    """Computes this warpgroup's part of the program's tiles, or every other tile."""
    M, N, K, tiles, all_tiles = sizes
    BLOCK_M: gl.constexpr = BLOCK[0]
    BLOCK_N: gl.constexpr = BLOCK[1]
    STAGES: gl.constexpr = rings[1].shape[0]
    PARTS: gl.constexpr = rings[0].shape[0] // STAGES
    ROWS: gl.constexpr = rings[0].shape[2]
    PART: gl.constexpr = WHO if PARTS > 1 else 0
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    C_COLUMNS: gl.constexpr = c_tiles.shape[3]
    C_LAYOUT: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, C_COLUMNS], c_tiles.dtype)
    steps = gl.cdiv(K, BLOCK[2])
    first, every = gl.program_id(0), gl.num_programs(0)
    at = gl.to_tensor(0)
    turn = gl.to_tensor(1 if WHO == 0 else 0)
    if PARTS == 1:
        # Each warpgroup passes over the steps of the other's tiles.
        at += WHO * steps
        first += WHO * every
        every *= CONSUMERS
    for index in range(first, all_tiles, every):
        z = index // tiles
        row, column = tile_origin(index % tiles, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        if PARTS == 1:
            mbarrier.wait(rings[4].index(WHO), turn)
            turn ^= 1
        acc = _multiply_steps(
            rings, at % STAGES, at // STAGES & 1, steps, WHO, LAYOUT, BLOCK, B_DENSE
        )
        at += steps * (CONSUMERS if PARTS == 1 else 1)
        if bias_ptr is not None:
            n = column + gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, LAYOUT))
            acc += gl.load(bias_ptr + n, mask=n < N, other=0.0).to(gl.float32)[None, :]
        out = activated(acc, ACTIVATION).to(c_tiles.dtype)
        pieces = (out,) if C_COLUMNS == BLOCK_N else _halved(out)
        target = c_tiles.index(WHO)
        rows = target._reinterpret(c_tiles.dtype, [ROWS, C_COLUMNS], C_LAYOUT)
        for piece in gl.static_range(BLOCK_N // C_COLUMNS):
            # The copy engine has read what was stored here before.
            tma.store_wait(0)
            rows.store(gl.convert_layout(pieces[piece], LAYOUT))
            fence_async_shared()
            store_tile(c_desc, [z, row + PART * ROWS, column + piece * C_COLUMNS], target)
    tma.store_wait(0)


@gluon.jit
def kernel(
    a_desc,
    b_desc,
    c_desc,
    bias_ptr,
    batch,
    M,
    N,
    K,
    B_DENSE: gl.constexpr,
    ACTIVATION: gl.constexpr,
    SMS: gl.constexpr,  # noqa: ARG001 (of the grid)
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr,
    PIECES: gl.constexpr,  # noqa: ARG001 (of C's block)
    PINGPONG: gl.constexpr,
    GROUP_M: gl.constexpr,
):
    """Computes every so many-th tile of C of all products; PIECES: in which a tile is written."""
    BLOCK: gl.constexpr = (BLOCK_M, BLOCK_N, BLOCK_K)
    PARTS: gl.constexpr = 1 if PINGPONG else CONSUMERS
    c_tiles = ring_of(c_desc, CONSUMERS)
    rings = (
        ring_of(a_desc, STAGES * PARTS),
        ring_of(b_desc, STAGES),
        barriers_of(STAGES, 1),
        barriers_of(STAGES, PARTS),
        barriers_of(CONSUMERS, 1),
    )
    fence_async_shared()  # so that copies see the barriers
    tiles = gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N)
    sizes = (M, N, K, tiles, batch * tiles)
    operands = (a_desc, b_desc)
    gl.warp_specialize(
        [
            (
                _multiply_tiles,
                (c_desc, bias_ptr, rings, c_tiles, sizes, 0, BLOCK, GROUP_M, B_DENSE, ACTIVATION),
            ),
            (
                _multiply_tiles,
                (c_desc, bias_ptr, rings, c_tiles, sizes, 1, BLOCK, GROUP_M, B_DENSE, ACTIVATION),
            ),
            (_load_tiles, (operands, rings, sizes, BLOCK, GROUP_M, B_DENSE)),
        ],
        [4, 1],
        [240, 24],
    )


OUTPUTS = ("c_desc",)

DTYPES = ("fp16", "bf16")

SHAPES = (
    {"batch": 1, "M": 4096, "N": 4096, "K": 4096},
    {"batch": 1, "M": 8192, "N": 8192, "K": 8192},
    {"batch": 1, "M": 1000, "N": 520, "K": 200},
)

_REGISTERS = 168
"""Of a thread: 65536 over twelve warps, in units of 8."""

_AXES = ("BLOCK_M", "BLOCK_N", "PINGPONG", "STAGES", "PIECES", "BLOCK_K", "GROUP_M")
_TILES = (  # the first three, then pairs of STAGES and PIECES
    (128, 256, False, ((3, 1), (4, 2))),
    (256, 128, False, ((3, 1), (4, 2))),
    (128, 128, False, ((4, 1), (5, 1))),
    (128, 64, False, ((6, 1),)),
    (128, 128, True, ((4, 1), (5, 1))),
    (64, 256, True, ((3, 1), (4, 1))),
    (64, 128, True, ((6, 1),)),
)


def set_blocks(values: Mapping[str, Any]) -> None:
    """Set what a config's descriptors copy at a time: its `pre_hook`."""
    m, n, k = (values[f"BLOCK_{axis}"] for axis in "MNK")
    rows = m if values["PINGPONG"] else m // CONSUMERS.value
    set_block(values["a_desc"], rows, k)
    set_block(values["b_desc"], *((k, n) if values["B_DENSE"] == "n" else (n, k)))
    set_block(values["c_desc"], rows, n // values["PIECES"])


def space() -> Space:
    """List tiles with their stages: as many as shared memory holds, or nearly so."""
    configs = [
        Config(
            dict(zip(_AXES, (m, n, pingpong, stages, pieces, 64, group), strict=True)),
            num_warps=4,
            maxnreg=_REGISTERS,
            pre_hook=set_blocks,
        )
        for m, n, pingpong, rings in _TILES
        for stages, pieces in rings
        for group in (8, 16)
    ]
    usual = (128, 128)
    default = next(c for c in configs if (c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) == usual)
    return Space.from_configs(configs, default=default)


def grid(values: Mapping[str, Any]) -> tuple[int]:
    """Give the grid: a program for each multiprocessor, or for each tile if they are fewer."""
    tiles = triton.cdiv(values["M"], values["BLOCK_M"])
    tiles *= triton.cdiv(values["N"], values["BLOCK_N"])
    return (min(values["batch"] * tiles, values["SMS"]),)


def arguments(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str = "none",
) -> dict[str, Any]:
    """Give a launch's arguments by name.

    Args:
        a: (batch, M, K).
        b: (batch, K, N), dense along N or K.
        c: (batch, M, N), which the launch writes.
        bias: (N,), or None.
        activation: by name, as in `matmul`.
    """
    batch, M, K = a.shape
    dense = "n" if b.stride(2) == 1 else "k"
    return {
        "a_desc": described(a),
        "b_desc": described(b if dense == "n" else b.mT),
        "c_desc": described(c),
        "bias_ptr": bias,
        "batch": batch,
        "M": M,
        "N": b.shape[2],
        "K": K,
        "B_DENSE": dense,
        "ACTIVATION": activation,
        "SMS": processors(a.device),
    }


def multiply(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str = "none",
) -> None:
    """Write activation(A B + bias) to C by the tuned kernel; `arguments` describes each.

    Raises:
        ValueError: the GPU, a dtype or a layout is none that the kernel takes.
    """
    refuse_others("multiply", {"a": a, "b": b if b.stride(-1) == 1 else b.mT, "c": c})
    tuned[grid](**arguments(a, b, c, bias, activation))


def in_place_of_plain(*values: Any) -> None:
    """Compute what `matmul`'s kernel does from that kernel's arguments, in order.

    Raises:
        ValueError: as `multiply` does.
    """
    from asmtune.kernels import matmul

    given = dict(zip(matmul.kernel.arg_names, values, strict=False))
    operands = (given[name] for name in ("a_ptr", "b_ptr", "c_ptr", "bias_ptr"))
    multiply(*operands, given["ACTIVATION"])


def inputs(shape: Mapping[str, int], dtype: str, device: str) -> dict[str, Any]:
    """Make random matrices; B is (N, K) in memory, as weights are."""
    batch, M, N, K = shape["batch"], shape["M"], shape["N"], shape["K"]
    kinds = {"device": device, "dtype": torch_dtype(dtype)}
    return {"a": torch.randn((batch, M, K), **kinds), "b": torch.randn((batch, N, K), **kinds).mT}


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch of products of random matrices; device "meta" needs no GPU."""
    a, b = inputs(shape, dtype, device).values()
    c = torch.empty((*a.shape[:2], b.shape[2]), device=device, dtype=a.dtype)
    return Problem(kernel, arguments(a, b, c), grid, shape, "hopper_gemm")


def reference(values: Mapping[str, Any]) -> torch.Tensor:
    """Compute C in float64 from a problem's arguments."""
    b = values["b_desc"].base.double()
    return values["a_desc"].base.double() @ (b if values["B_DENSE"] == "n" else b.mT)


tuned = asm_autotune(space=space, key=["batch", pow2("M"), "N", "K", "B_DENSE", "ACTIVATION"])(
    kernel
)
