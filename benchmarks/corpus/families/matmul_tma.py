"""Matrix product with tensor descriptors made by each program; B stored (N, K).

Descriptors need scratch memory of the device: `problem` sets Triton's allocator
for the calling thread, and a launch from another must call `triton.set_allocator`.
Rows must take a multiple of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from asmtune.core.dtypes import torch_dtype
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import bounded, launch, tiles


@triton.jit
def kernel(
    a_ptr,
    b_ptr,
    y_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Compute one tile a program, column by column of tiles."""
    num_m = tl.cdiv(M, BLOCK_M)
    m = (tl.program_id(0) % num_m) * BLOCK_M
    n = (tl.program_id(0) // num_m) * BLOCK_N
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BLOCK_M, BLOCK_K])
    b = tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BLOCK_N, BLOCK_K])
    y = tl.make_tensor_descriptor(y_ptr, [M, N], [N, 1], [BLOCK_M, BLOCK_N])
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for k in range(0, K, BLOCK_K):
        acc = tl.dot(a.load([m, k]), b.load([n, k]).T, acc)
    y.store([m, n], acc.to(y_ptr.dtype.element_ty))


DTYPES = ("fp16",)

SHAPES = (
    {"M": 4096, "N": 4096, "K": 4096},
    {"M": 512, "N": 768, "K": 1024},
    {"M": 8192, "N": 1024, "K": 512},
    {"M": 1001, "N": 1000, "K": 3000},
)


def space() -> Space:
    """Build the space: tile, stages and warps."""
    axes = {
        "BLOCK_M": (32, 64, 128, 256),
        "BLOCK_N": (32, 64, 128, 256),
        "BLOCK_K": (32, 64, 128),
        "num_warps": (4, 8),
        "num_stages": (2, 3, 4),
    }
    return bounded(axes, 256, 2)


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random matrices."""
    M, N, K = shape["M"], shape["N"], shape["K"]
    a = torch.randn(M, K, device=device, dtype=torch_dtype(dtype))
    b = torch.randn(N, K, device=device, dtype=torch_dtype(dtype))
    arguments = {"a_ptr": a, "b_ptr": b, "y_ptr": a.new_empty(M, N)}
    if device != "meta":
        triton.set_allocator(lambda size, _alignment, _stream: a.new_empty(size, dtype=torch.int8))
    return launch(kernel, shape, arguments, tiles)
