"""Matrix product C = A B in Gluon for Hopper: TMA copies, wgmma, and a ring of stages.

A kernel module like those of kernels/ (tiled_matmul.py tells its parts), for one architecture:

    asmtune prune-report examples/gluon_matmul.py --target H200 --shape M=4096,N=4096,K=4096
    asmtune tune examples/gluon_matmul.py

Each program computes one tile. While the tensor cores multiply the tiles of a step, the copy engine
fetches those of the next STAGES - 1 steps. Copies fill what lies outside a matrix with zeros, and
write no rows there and no columns, but for the rest of a row's last 16 bytes, which C's rows must
own. So no extent has to be a multiple of a tile's.

A tile's extents are part of a descriptor's layout, so each config sets them by its `pre_hook`.

Shapes: A is (M, K), B is (K, N), C is (M, N).
Dtypes: fp16, bf16. Accumulates in fp32.
Layout: rows contiguous, and multiples of 16 bytes apart; `gluon_matmul` copies where they are not.
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
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from asmtune import Config, Problem, Space, asm_autotune

# Their names in newer versions of Triton, and in 3.6.
load_tile = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
store_tile = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global


@gluon.jit
def _fetch(a_desc, b_desc, row, column, step, steps, a_ring, b_ring, full, STAGES: gl.constexpr):
    """Begin to copy the tiles of a step into its stage of the ring."""
    stage = step % STAGES
    block_k: gl.constexpr = a_desc.block_type.shape[1]
    wanted = step < steps
    bytes_of_a: gl.constexpr = a_desc.block_type.nbytes
    bytes_of_b: gl.constexpr = b_desc.block_type.nbytes
    mbarrier.expect(full.index(stage), bytes_of_a + bytes_of_b, pred=wanted)
    at = step * block_k
    load_tile(a_desc, [row, at], full.index(stage), a_ring.index(stage), pred=wanted)
    load_tile(b_desc, [at, column], full.index(stage), b_ring.index(stage), pred=wanted)


@gluon.jit
def kernel(
    a_desc,
    b_desc,
    c_desc,
    M,
    N,
    K,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    GROUP_M: gl.constexpr,
    STAGES: gl.constexpr,
    num_warps: gl.constexpr,
):
    """Compute one BLOCK_M x BLOCK_N tile of C a program."""
    pid = gl.program_id(0)
    num_m = gl.cdiv(M, BLOCK_M)
    group = GROUP_M * gl.cdiv(N, BLOCK_N)
    first_m = (pid // group) * GROUP_M
    rows = gl.minimum(num_m - first_m, GROUP_M)
    row = (first_m + (pid % group) % rows) * BLOCK_M
    column = ((pid % group) // rows) * BLOCK_N

    dtype: gl.constexpr = a_desc.dtype
    a_ring = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_M, BLOCK_K], a_desc.layout)
    b_ring = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_K, BLOCK_N], b_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)

    steps = gl.cdiv(K, BLOCK_K)
    for i in gl.static_range(STAGES - 1):
        _fetch(a_desc, b_desc, row, column, i, steps, a_ring, b_ring, full, STAGES)
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[num_warps, 1], instr_shape=[16, BLOCK_N, 16]
    )
    acc = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, layout)
    for step in range(steps):
        stage = step % STAGES
        mbarrier.wait(full.index(stage), (step // STAGES) & 1)
        acc = warpgroup_mma(a_ring.index(stage), b_ring.index(stage), acc, is_async=True)
        # The product of the step before is done: its stage is free for another step's tiles.
        acc = warpgroup_mma_wait(num_outstanding=1, deps=[acc])
        ahead = step + STAGES - 1
        _fetch(a_desc, b_desc, row, column, ahead, steps, a_ring, b_ring, full, STAGES)
    acc = warpgroup_mma_wait(num_outstanding=0, deps=[acc])
    for i in gl.static_range(STAGES):
        mbarrier.invalidate(full.index(i))

    c_tile = gl.allocate_shared_memory(dtype, [BLOCK_M, BLOCK_N], c_desc.layout)
    c_tile.store(acc.to(dtype))
    fence_async_shared()
    store_tile(c_desc, [row, column], c_tile)
    tma.store_wait(0)


OUTPUTS = ("c_desc",)

DTYPES = ("fp16", "bf16")

SHAPES = (
    {"M": 4096, "N": 4096, "K": 4096},
    {"M": 1024, "N": 1024, "K": 512},
    {"M": 1000, "N": 520, "K": 200},
)

_TORCH = {"fp16": torch.float16, "bf16": torch.bfloat16}
_GLUON = {torch.float16: gl.float16, torch.bfloat16: gl.bfloat16}

_TILES = (  # BLOCK_M, BLOCK_N, warps: four warps take 64 rows, and a thread 32 to 128 sums
    (64, 64, 4), (64, 128, 4), (64, 256, 4), (128, 64, 4),
    (128, 128, 4), (128, 128, 8), (128, 256, 8), (256, 128, 8),
)  # fmt: skip


def set_tiles(values: Mapping[str, Any]) -> None:
    """Set the tiles that a config's descriptors copy: its `pre_hook`."""
    m, n, k = (values[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
    for name, tile in (("a_desc", [m, k]), ("b_desc", [k, n]), ("c_desc", [m, n])):
        values[name].block_shape = tile
        values[name].layout = _layout(tile, values[name].base.dtype)


def _layout(tile: list[int], dtype: torch.dtype) -> gl.NVMMASharedLayout:
    return gl.NVMMASharedLayout.get_default_for(tile, _GLUON[dtype])


def space() -> Space:
    """List tiles with their warps, each with two to four stages."""
    configs = [
        Config(
            {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": 64, "GROUP_M": 8, "STAGES": stages},
            num_warps=warps,
            pre_hook=set_tiles,
        )
        for m, n, warps in _TILES
        for stages in (2, 3, 4)
    ]
    return Space.from_configs(configs, default=configs[_TILES.index((128, 128, 4)) * 3 + 1])


def grid(values: Mapping[str, Any]) -> tuple[int]:
    """Return one program a tile of C."""
    tiles_m = triton.cdiv(values["M"], values["BLOCK_M"])
    return (tiles_m * triton.cdiv(values["N"], values["BLOCK_N"]),)


def inputs(shape: Mapping[str, int], dtype: str, device: str) -> dict[str, torch.Tensor]:
    """Make random arguments of `gluon_matmul` by name."""
    M, N, K = shape["M"], shape["N"], shape["K"]
    kinds = {"device": device, "dtype": _TORCH[dtype]}
    return {"a": torch.randn((M, K), **kinds), "b": torch.randn((K, N), **kinds)}


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch of one product of random matrices; device "meta" needs no GPU."""
    a, b = inputs(shape, dtype, device).values()
    c = torch.empty((shape["M"], shape["N"]), device=device, dtype=a.dtype)
    return Problem(kernel, arguments(a, b, _aligned(c)), grid, shape, "gluon_matmul")


def reference(values: Mapping[str, Any]) -> torch.Tensor:
    """Compute C in float64 from a problem's arguments."""
    return values["a_desc"].base.double() @ values["b_desc"].base.double()


def arguments(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> dict[str, Any]:
    """Return the arguments of a launch by name; A and B are copied if TMA cannot address them."""
    M, N, K = *c.shape, a.shape[1]
    matrices = {"a_desc": _aligned(a), "b_desc": _aligned(b), "c_desc": c}
    described = {name: _described(matrix) for name, matrix in matrices.items()}
    return {**described, "M": M, "N": N, "K": K}


def _described(matrix: torch.Tensor) -> TensorDescriptor:
    tile = [64, 64]  # until a config's `set_tiles`
    return TensorDescriptor.from_tensor(matrix, tile, _layout(tile, matrix.dtype))


def _aligned(matrix: torch.Tensor) -> torch.Tensor:
    """Return a matrix that TMA can address: rows contiguous, multiples of 16 bytes apart."""
    rows, columns = matrix.shape
    step = 16 // matrix.element_size()
    is_meta = matrix.device.type == "meta"
    starts = is_meta or matrix.data_ptr() % 16 == 0
    apart = matrix.stride(0)
    if starts and matrix.stride(1) == 1 and apart >= columns and apart % step == 0:
        return matrix
    width = triton.cdiv(columns, step) * step
    padded = torch.empty((rows, width), device=matrix.device, dtype=matrix.dtype)
    padded[:, :columns] = matrix
    return padded[:, :columns]


def gluon_matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Compute A @ B by the tuned kernel.

    Raises:
        ValueError: they are no matrices, are empty, or their inner extents or dtypes do not fit.
    """
    what = f"gluon_matmul of {tuple(a.shape)} {a.dtype} and {tuple(b.shape)} {b.dtype}"
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0] or a.dtype != b.dtype:
        raise ValueError(f"{what}: expected two matrices of equal inner extents and equal dtypes")
    if a.dtype not in _GLUON or 0 in (*a.shape, *b.shape):
        raise ValueError(f"{what}: expected fp16 or bf16, and no extent of 0")
    M, N = a.shape[0], b.shape[1]
    c = torch.empty((M, triton.cdiv(N, 8) * 8), device=a.device, dtype=a.dtype)[:, :N]
    tuned[grid](**arguments(a, b, c))
    return c


tuned = asm_autotune(space=space, key=["M", "N", "K"])(kernel)
