"""Gluon kernels of the tests: rows and copies for any device, and one for each way to move data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import blackwell as bw
from triton.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from asmtune.core.config import Config
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space

# Their names in newer versions of Triton, and in 3.6.
load_tile = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
store_tile = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global
NAMES_LAYOUT = gl.constexpr(hasattr(bw, "get_tmem_reg_layout"))
copy_ahead = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared


@gluon.jit
def scale(x_ptr, y_ptr, n, BLOCK: gl.constexpr, num_warps: gl.constexpr):
    """Double."""
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [num_warps], [0])
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    inside = at < n
    gl.store(y_ptr + at, gl.load(x_ptr + at, mask=inside) * 2, mask=inside)


@gluon.jit
def row_sum(x_ptr, y_ptr, columns, BLOCK: gl.constexpr, num_warps: gl.constexpr):
    """Sum a row, a block of columns after the other."""
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [num_warps], [0])
    row = gl.program_id(0)
    total = gl.zeros([BLOCK], gl.float32, layout)
    for start in range(0, columns, BLOCK):
        at = start + gl.arange(0, BLOCK, layout=layout)
        total += gl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0).to(gl.float32)
    gl.store(y_ptr + row, gl.sum(total, 0))


@gluon.jit
def _load_rows(x_desc, buffer, ready, empty, steps, BLOCK: gl.constexpr):
    for i in range(steps):
        mbarrier.wait(empty, (i & 1) ^ 1)
        mbarrier.expect(ready, x_desc.block_type.nbytes)
        load_tile(x_desc, [i * BLOCK, 0], ready, buffer)


@gluon.jit
def _store_rows(y_desc, buffer, ready, empty, steps, BLOCK: gl.constexpr):
    for i in range(steps):
        mbarrier.wait(ready, i & 1)
        store_tile(y_desc, [i * BLOCK, 0], buffer)
        tma.store_wait(0)
        mbarrier.arrive(empty, count=1)


@gluon.jit
def passed_on(x_desc, y_desc, n, BLOCK: gl.constexpr, num_warps: gl.constexpr):
    """Copy rows: one warp loads them and the others store them."""
    buffer = gl.allocate_shared_memory(x_desc.dtype, x_desc.block_type.shape, x_desc.layout)
    ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(ready, count=1)
    mbarrier.init(empty, count=1)
    steps = gl.cdiv(n, BLOCK)
    gl.warp_specialize(
        [
            (_store_rows, (y_desc, buffer, ready, empty, steps, BLOCK)),
            (_load_rows, (x_desc, buffer, ready, empty, steps, BLOCK)),
        ],
        [1],
        [24],
    )


@gluon.jit
def _load_row(x_ptr, z_ptr, at):
    return gl.load(x_ptr + at), z_ptr


@gluon.jit
def _store_row(y_ptr, at):
    gl.store(y_ptr + at, 0.0)


@gluon.jit
def handed_back(x_ptr, y_ptr, z_ptr, n, num_warps: gl.constexpr):
    """Store through the address that a partition of warps gives back."""
    value, out_ptr = gl.warp_specialize(
        [(_load_row, (x_ptr, z_ptr, n)), (_store_row, (y_ptr, n))], [4], [24]
    )
    gl.store(out_ptr + n, value)


@gluon.jit
def one_tile(a_desc, b_desc, c_desc, K, TILE: gl.constexpr, num_warps: gl.constexpr):
    """Multiply one tile by tcgen05, without a pipeline."""
    a = gl.allocate_shared_memory(a_desc.dtype, a_desc.block_type.shape, a_desc.layout)
    b = gl.allocate_shared_memory(b_desc.dtype, b_desc.block_type.shape, b_desc.layout)
    loaded = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    multiplied = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(loaded, count=1)
    mbarrier.init(multiplied, count=1)
    layout: gl.constexpr = bw.TensorMemoryLayout([128, TILE], col_stride=1)
    acc = bw.allocate_tensor_memory(gl.float32, [128, TILE], layout)
    use = False
    phase = 0
    for k in range(gl.cdiv(K, 64)):
        mbarrier.expect(loaded, a_desc.block_type.nbytes + b_desc.block_type.nbytes)
        load_tile(a_desc, [0, k * 64], loaded, a)
        load_tile(b_desc, [k * 64, 0], loaded, b)
        mbarrier.wait(loaded, phase)
        bw.tcgen05_mma(a, b, acc, use_acc=use)
        bw.tcgen05_commit(multiplied)
        mbarrier.wait(multiplied, phase)
        use = True
        phase ^= 1
    if NAMES_LAYOUT:
        out = acc.load(bw.get_tmem_reg_layout(gl.float32, (128, TILE), layout, num_warps))
    else:
        out = acc.load()
    c = gl.allocate_shared_memory(c_desc.dtype, c_desc.block_type.shape, c_desc.layout)
    c.store(out.to(c_desc.dtype))
    fence_async_shared()
    store_tile(c_desc, [0, 0], c)
    tma.store_wait(0)


@gluon.jit
def small_dot(a_ptr, b_ptr, c_ptr, TILE: gl.constexpr, num_warps: gl.constexpr):
    """Multiply one tile of TILE x 64 x 16 by mma.sync, whatever the device."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [num_warps, 1], [16, 8])
    left: gl.constexpr = gl.DotOperandLayout(0, layout, 2)
    right: gl.constexpr = gl.DotOperandLayout(1, layout, 2)
    rows = gl.arange(0, TILE, layout=gl.SliceLayout(1, left))
    inner = gl.arange(0, 16, layout=gl.SliceLayout(0, left))
    a = gl.load(a_ptr + rows[:, None] * 16 + inner[None, :])
    inner = gl.arange(0, 16, layout=gl.SliceLayout(1, right))
    columns = gl.arange(0, 64, layout=gl.SliceLayout(0, right))
    b = gl.load(b_ptr + inner[:, None] * 64 + columns[None, :])
    c = mma_v2(a, b, gl.zeros([TILE, 64], gl.float32, layout))
    rows = gl.arange(0, TILE, layout=gl.SliceLayout(1, layout))
    columns = gl.arange(0, 64, layout=gl.SliceLayout(0, layout))
    gl.store(c_ptr + rows[:, None] * 64 + columns[None, :], c)


@gluon.jit
def exact_dot(x_ptr, y_ptr, TILE: gl.constexpr, num_warps: gl.constexpr):
    """Multiply a tile by itself without tensor cores."""
    layout: gl.constexpr = gl.BlockedLayout([1, 1], [4, 8], [num_warps, 1], [1, 0])
    rows = gl.arange(0, TILE, layout=gl.SliceLayout(1, layout))
    columns = gl.arange(0, TILE, layout=gl.SliceLayout(0, layout))
    at = rows[:, None] * TILE + columns[None, :]
    x = gl.load(x_ptr + at)
    left = gl.convert_layout(x, gl.DotOperandLayout(0, layout, 0))
    right = gl.convert_layout(x, gl.DotOperandLayout(1, layout, 0))
    gl.store(y_ptr + at, gl.dot_fma(left, right, gl.zeros([TILE, TILE], gl.float32, layout)))


@gluon.jit
def described(x_ptr, y_ptr, n, BLOCK: gl.constexpr, num_warps: gl.constexpr):
    """Copy rows by descriptors made in the kernel."""
    shared: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK, 64], gl.float16)
    x = tma.make_tensor_descriptor(x_ptr, [n, 64], [64, 1], [BLOCK, 64], shared)
    y = tma.make_tensor_descriptor(y_ptr, [n, 64], [64, 1], [BLOCK, 64], shared)
    buffer = gl.allocate_shared_memory(gl.float16, [BLOCK, 64], shared)
    ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(ready, count=1)
    mbarrier.expect(ready, x.block_type.nbytes)
    at = gl.program_id(0) * BLOCK
    load_tile(x, [at, 0], ready, buffer)
    mbarrier.wait(ready, 0)
    store_tile(y, [at, 0], buffer)
    tma.store_wait(0)


@gluon.jit
def undecided(x_ptr, n, BLOCK: gl.constexpr, num_warps: gl.constexpr):
    """Store a tile of no layout, which only a pass refuses."""
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK)
    gl.store(x_ptr + at, at, mask=at < n)


def descriptor(tensor: torch.Tensor, block: list[int]) -> TensorDescriptor:
    """Describe a tensor of 16-bit numbers for tiles of a shape."""
    layout = gl.NVMMASharedLayout.get_default_for(block, gl.float16)
    return TensorDescriptor.from_tensor(tensor, block, layout)


def scale_problem(n: int = 4096, device: str = "meta") -> Problem:
    """Double `n` numbers."""
    x, y = torch.ones(n, device=device), torch.zeros(n, device=device)
    return Problem(scale, {"x_ptr": x, "y_ptr": y, "n": n}, blocks, {"n": n})


def blocks(values: Mapping[str, Any]) -> tuple[int]:
    """Blocks of `n` numbers."""
    return (triton.cdiv(values["n"], values["BLOCK"]),)


def scale_space() -> Space:
    """Blocks and warps."""
    axes = {"BLOCK": (512, 1024, 2048), "num_warps": (2, 4)}
    return Space(axes, default=Config({"BLOCK": 1024}, num_warps=4))
