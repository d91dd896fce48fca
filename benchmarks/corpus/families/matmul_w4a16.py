"""fp16 times int4: eight weights in an int32 along K, unpacked and scaled in registers."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from asmtune.core.dtypes import torch_dtype
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import held, launch, tiles


@triton.jit
def kernel(
    a_ptr,
    b_ptr,
    scale_ptr,
    y_ptr,
    M,
    N,
    K,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Compute one tile a program; K is a multiple of GROUP, and GROUP of BLOCK_K."""
    num_n = tl.cdiv(N, BLOCK_N)
    m = (tl.program_id(0) // num_n) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = (tl.program_id(0) % num_n) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a = a_ptr + (m % M)[:, None] * K + k[None, :]
    b = b_ptr + (k // 8)[:, None] * N + (n % N)[None, :]
    shift = (k % 8)[:, None] * 4
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for i in range(0, K, BLOCK_K):
        scale = tl.load(scale_ptr + (i // GROUP) * N + n % N)
        weight = ((tl.load(b) >> shift) & 0xF) - 8
        acc = tl.dot(tl.load(a), weight.to(tl.float16) * scale[None, :], acc)
        a += BLOCK_K
        b += (BLOCK_K // 8) * N
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(y_ptr + m[:, None] * N + n[None, :], acc.to(tl.float16), mask=inside)


DTYPES = ("fp16",)

SHAPES = (
    {"M": 16, "N": 14336, "K": 4096},
    {"M": 1, "N": 4096, "K": 4096},
    {"M": 2048, "N": 4096, "K": 2048},
    {"M": 123, "N": 3001, "K": 1152},
)


def space() -> Space:
    """Build the space: tile, stages and warps."""
    axes = {
        "BLOCK_M": (16, 32, 64, 128),
        "BLOCK_N": (32, 64, 128, 256),
        "BLOCK_K": (32, 64, 128),
        "num_warps": (4, 8),
        "num_stages": (2, 3, 4),
    }
    return (
        held(axes, 4, 128, "BLOCK_M", "BLOCK_N")
        .where(
            "the stages fit in shared memory",
            lambda BLOCK_M, BLOCK_N, BLOCK_K, num_stages: (
                (BLOCK_M + BLOCK_N) * BLOCK_K * 2 * num_stages <= 200 * 1024
            ),
        )
        .where(
            "a thread unpacks 8 to 128 weights at once",
            lambda BLOCK_N, BLOCK_K, num_warps: 8 <= BLOCK_N * BLOCK_K // (num_warps * 32) <= 128,
        )
    )


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random activations, weights and scales, one scale for 128 weights."""
    M, N, K = shape["M"], shape["N"], shape["K"]
    kind = torch_dtype(dtype)
    a = torch.randn(M, K, device=device, dtype=kind)
    b = torch.randint(-(1 << 31), 1 << 31, (K // 8, N), device=device, dtype=torch.int32)
    scale = (torch.rand(K // 128, N, device=device) * 0.02).to(kind)
    arguments = {"a_ptr": a, "b_ptr": b, "scale_ptr": scale, "y_ptr": a.new_empty(M, N)}
    return launch(kernel, shape, {**arguments, "GROUP": 128}, tiles)
