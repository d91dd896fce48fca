"""C = A B in row-major tiles. fp32 is multiplied as tf32, which is `tl.dot`'s own choice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.core.problem import Problem

CONFIGS = (
    Config({"BLOCK_M": 64, "BLOCK_N": 16, "BLOCK_K": 16}),
    Config({"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 16}),
)

OUTPUTS = ("c_ptr",)


@triton.jit
def kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Compute one tile of C a program."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    tile_m, tile_n = tl.program_id(0) // tiles_n, tl.program_id(0) % tiles_n
    row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    col = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    a = a_ptr + (row % M)[:, None] * stride_am + inner[None, :] * stride_ak
    b = b_ptr + inner[:, None] * stride_bk + (col % N)[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        left = K - k * BLOCK_K
        tile_a = tl.load(a, mask=inner[None, :] < left, other=0.0)
        tile_b = tl.load(b, mask=inner[:, None] < left, other=0.0)
        acc += tl.dot(tile_a, tile_b)
        a += BLOCK_K * stride_ak
        b += BLOCK_K * stride_bk
    c = c_ptr + row[:, None] * stride_cm + col[None, :] * stride_cn
    tl.store(c, acc, mask=(row[:, None] < M) & (col[None, :] < N))


def _grid(values: Mapping[str, Any]) -> tuple[int]:
    tiles_m = triton.cdiv(values["M"], values["BLOCK_M"])
    return (tiles_m * triton.cdiv(values["N"], values["BLOCK_N"]),)


def problem(inputs: Mapping[str, Any]) -> Problem:
    """Make one product."""
    a, b = inputs["a"], inputs["b"]
    c = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    names = ("stride_am", "stride_ak", "stride_bk", "stride_bn", "stride_cm", "stride_cn")
    strides = dict(zip(names, (*a.stride(), *b.stride(), *c.stride()), strict=True))
    sizes = {"M": a.shape[0], "N": b.shape[1], "K": a.shape[1]}
    return Problem(
        kernel,
        {"a_ptr": a, "b_ptr": b, "c_ptr": c, **sizes, **strides},
        _grid,
        name="untuned matmul",
    )
