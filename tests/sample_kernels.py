"""Small kernels that the tests compile; each shows one thing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.problem import Problem


@triton.jit
def scale(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Compute y = 2 x: no matrix product, no loop."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=inside) * 2.0, mask=inside)


@triton.jit
def row_sum(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    """Reduce a row in a loop and through shared memory, without a matrix product."""
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + tl.program_id(0) * cols + at, mask=at < cols, other=0.0)
    tl.store(y_ptr + tl.program_id(0), tl.sum(total, 0))


@triton.jit
def strided(x_ptr, y_ptr, tiles, BLOCK: tl.constexpr):
    """Loop over the tiles of a program by a variable that has a name in the IR."""
    tile = tl.program_id(0)
    while tile < tiles:
        at = tile * BLOCK + tl.arange(0, BLOCK)
        tl.store(y_ptr + at, tl.load(x_ptr + at) * 2.0)
        tile += tl.num_programs(0)


@triton.jit
def product(
    a_ptr, b_ptr, c_ptr, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Compute C = A B of row-major matrices whose extents the tile divides."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    a = a_ptr + rows[:, None] * K + depth[None, :]
    b = b_ptr + depth[:, None] * N + cols[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(0, K, BLOCK_K):
        acc = tl.dot(tl.load(a), tl.load(b), acc)
        a += BLOCK_K
        b += BLOCK_K * N
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc.to(c_ptr.dtype.element_ty))


@triton.jit
def described_sums(a, c, rows, BLOCK: tl.constexpr):
    """Add up all tiles of A through host descriptors; write a tile of C a program."""
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, rows, BLOCK):
        acc += a.load([start, 0]).to(tl.float32)
    c.store([tl.program_id(0) * BLOCK, 0], acc.to(tl.float16))


@triton.jit
def asks_for_warps(x_ptr):
    """Ask for num_warps, on which its TTIR depends."""
    tl.store(x_ptr, tl.extra.cuda.num_warps())


@triton.jit
def asks_for_threads(x_ptr):
    """Ask for threads, so that its TTIR depends on num_warps as well."""
    tl.store(x_ptr, tl.extra.cuda.num_threads())


@triton.jit
def unrolled(x_ptr, TIMES: tl.constexpr):
    """Unroll a loop, which the front end walks TIMES times."""
    for i in tl.static_range(TIMES):
        tl.store(x_ptr + i, tl.load(x_ptr + i) + 1)


@triton.jit
def refused(x_ptr, n, BLOCK: tl.constexpr):
    """Make the front end refuse it; the words "shared memory" stand here to mislead."""
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, not_defined + 1, mask=at < n)  # noqa: F821


@triton.jit
def refused_by_size(x_ptr, n, BLOCK: tl.constexpr):
    """Make the front end refuse it with a text that has the size of the block."""
    tl.store(x_ptr + tl.arange(0, BLOCK), tl.arange(0, BLOCK) + tl.arange(0, 2 * BLOCK))


@triton.jit
def masked_square(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Load, compute on two lines, and store, in a loop, all masked."""
    at = tl.arange(0, BLOCK)
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + start + at, mask=start + at < n, other=0.0)
        y = tl.exp(x)
        y = y * x + 1.0
        tl.store(y_ptr + start + at, y, mask=start + at < n)


@triton.jit
def pair(x_ptr, n):
    """Return two values to a kernel that calls it; it is no kernel itself."""
    return tl.load(x_ptr) + n, n


def tensor(dtype: torch.dtype, *extents: int) -> torch.Tensor:
    """A tensor without memory."""
    return torch.empty(extents or (4096,), dtype=dtype, device="meta")


def scale_problem(n: int = 4096, dtype: torch.dtype = torch.float16) -> Problem:
    """`scale` without its BLOCK."""
    return Problem(scale, {"x_ptr": tensor(dtype), "y_ptr": tensor(dtype), "n": n}, (4,), {"n": n})


def row_sum_problem(cols: int = 4096) -> Problem:
    """`row_sum` without its BLOCK."""
    pointers = {name: tensor(torch.float32) for name in ("x_ptr", "y_ptr")}
    return Problem(row_sum, {**pointers, "cols": cols}, (16,), {"cols": cols})


def product_problem(dtype: torch.dtype = torch.float16, size: int = 1024) -> Problem:
    """`product` of square matrices, without its tile."""
    pointers = {name: tensor(dtype) for name in ("a_ptr", "b_ptr")}
    result = {torch.int8: torch.int32, torch.float8_e4m3fn: torch.float16}.get(dtype, dtype)
    arguments = {**pointers, "c_ptr": tensor(result), "N": size, "K": size}
    return Problem(product, arguments, (8, 8), {"N": size, "K": size})


def one_pointer(kernel: Any, **values: Any) -> Problem:
    """A kernel whose first parameter is a pointer to int32."""
    arguments: Mapping[str, Any] = {"x_ptr": tensor(torch.int32), **values}
    return Problem(kernel, arguments, (1,))
