"""Attention in three steps, y = softmax(scale q k^T) v: read it from top to bottom.

v0 naive: three kernels, with scores and weights in memory between them. v1 fused: scores and
softmax in one kernel, so that only weights are written. v2 flash: one kernel, which writes
neither: a running maximum and sum rescale what a block of queries has so far.
`python -m benchmarks.ladder.memory` draws what each allocates; docs/ladder_attention.md explains.

They are to learn from: `asmtune.kernels.attention` is the one to call.

Shapes: q is (heads, M, D), k and v (heads, N, D); D is 16, 32, 64 or 128; M and N any, from 1 on.
Dtypes: fp16, bf16, fp32; sums and softmax in fp32. fp32 is multiplied as tf32.
Layout: contiguous.
Errors: ValueError for other shapes, dtypes or layouts, or 2**31 scores and more.
Source: Dao et al., FlashAttention, arXiv:2205.14135; Milakov and Gimelshein, arXiv:1805.02867.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune import Config

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
DIMS = (16, 32, 64, 128)
BLOCK_M, BLOCK_N = 64, 64
TILE = Config({"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N}, num_warps=4, num_stages=2)


@triton.jit
def load_tile(ptr, first, rows, D: tl.constexpr, BLOCK: tl.constexpr):
    """Load BLOCK rows of D from `first` on; 0 past the last."""
    row = first + tl.arange(0, BLOCK)[:, None]
    return tl.load(ptr + row * D + tl.arange(0, D)[None, :], mask=row < rows, other=0.0)


@triton.jit
def score_tile(q, k_ptr, first, N, scale, D: tl.constexpr, BLOCK_N: tl.constexpr):
    """Compute a block of queries' scores of BLOCK_N keys from `first` on; -inf past the last."""
    n = first + tl.arange(0, BLOCK_N)[None, :]
    s = tl.dot(q, load_tile(k_ptr, first, N, D, BLOCK_N).T) * scale
    return tl.where(n < N, s, float("-inf"))


# v0: each kernel writes all of its results, M x N numbers a head, and the next reads them again.
@triton.jit
def scores(
    q_ptr, k_ptr, s_ptr, M, N, scale,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Compute a tile of the scores of one head."""
    head, first_m = tl.program_id(1).to(tl.int64), tl.program_id(0) * BLOCK_M
    m = first_m + tl.arange(0, BLOCK_M)[:, None]
    q = load_tile(q_ptr + head * M * D, first_m, M, D, BLOCK_M)
    first = tl.program_id(2) * BLOCK_N
    n = first + tl.arange(0, BLOCK_N)[None, :]
    s = score_tile(q, k_ptr + head * N * D, first, N, scale, D, BLOCK_N)
    at = s_ptr + (head * M + m) * N + n
    tl.store(at, s.to(s_ptr.dtype.element_ty), mask=(m < M) & (n < N))


@triton.jit
def softmax(s_ptr, p_ptr, N, BLOCK: tl.constexpr):
    """Compute a row of weights from a row of scores."""
    row, n = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    s = tl.load(s_ptr + row * N + n, mask=n < N, other=float("-inf")).to(tl.float32)
    p = tl.exp(s - tl.max(s, 0))
    tl.store(p_ptr + row * N + n, (p / tl.sum(p, 0)).to(p_ptr.dtype.element_ty), mask=n < N)


@triton.jit
def values(
    p_ptr, v_ptr, y_ptr, M, N, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """Multiply weights and values: a block of queries of one head."""
    head, first_m = tl.program_id(1).to(tl.int64), tl.program_id(0) * BLOCK_M
    m, d = first_m + tl.arange(0, BLOCK_M)[:, None], tl.arange(0, D)[None, :]
    y = tl.zeros((BLOCK_M, D), tl.float32)
    for first in range(0, N, BLOCK_N):
        n = first + tl.arange(0, BLOCK_N)[None, :]
        p = tl.load(p_ptr + (head * M + m) * N + n, mask=(m < M) & (n < N), other=0.0)
        y = tl.dot(p, load_tile(v_ptr + head * N * D, first, N, D, BLOCK_N), y)
    tl.store(y_ptr + (head * M + m) * D + d, y.to(y_ptr.dtype.element_ty), mask=m < M)


def v0(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Compute attention by three kernels."""
    check(q, k, v)
    made, (heads, M, D), N = buffers("v0", q, k), q.shape, k.shape[1]
    sizes = {"M": M, "N": N, "D": D, **TILE.all_kwargs()}
    tiles = (triton.cdiv(M, BLOCK_M), heads, triton.cdiv(N, BLOCK_N))
    scores[tiles](q, k, made["scores"], scale=D**-0.5, **sizes)
    block = triton.next_power_of_2(N)
    softmax[(heads * M,)](made["scores"], made["weights"], N, BLOCK=block, num_warps=4)
    values[tiles[:2]](made["weights"], v, made["y"], **sizes)
    return made["y"]


# v1: a block of queries walks over its keys twice: for the sums of its rows, then for the weights.
# Scores are multiplied twice, and never written.
@triton.jit
def weights(
    q_ptr, k_ptr, p_ptr, M, N, scale,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Compute softmax of the scores of a block of queries of one head."""
    head, first_m = tl.program_id(1).to(tl.int64), tl.program_id(0) * BLOCK_M
    m = first_m + tl.arange(0, BLOCK_M)[:, None]
    q = load_tile(q_ptr + head * M * D, first_m, M, D, BLOCK_M)
    k_ptr += head * N * D
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    for first in range(0, N, BLOCK_N):
        s = score_tile(q, k_ptr, first, N, scale, D, BLOCK_N)
        higher = tl.maximum(top, tl.max(s, 1))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(s - higher[:, None]), 1)
        top = higher
    for first in range(0, N, BLOCK_N):
        n = first + tl.arange(0, BLOCK_N)[None, :]
        s = score_tile(q, k_ptr, first, N, scale, D, BLOCK_N)
        p = (tl.exp(s - top[:, None]) / total[:, None]).to(p_ptr.dtype.element_ty)
        tl.store(p_ptr + (head * M + m) * N + n, p, mask=(m < M) & (n < N))


def v1(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Compute attention by two kernels, scores and softmax in one."""
    check(q, k, v)
    made, (heads, M, D), N = buffers("v1", q, k), q.shape, k.shape[1]
    sizes = {"M": M, "N": N, "D": D, **TILE.all_kwargs()}
    blocks = (triton.cdiv(M, BLOCK_M), heads)
    weights[blocks](q, k, made["weights"], scale=D**-0.5, **sizes)
    values[blocks](made["weights"], v, made["y"], **sizes)
    return made["y"]


# v2: when a higher score comes, what was summed so far shrinks by a factor. So weights need not
# wait for the row's sum, are multiplied by the values at once, and never leave the registers.
@triton.jit
def flash(
    q_ptr, k_ptr, v_ptr, y_ptr, M, N, scale,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Compute attention of a block of queries of one head."""
    head, first_m = tl.program_id(1).to(tl.int64), tl.program_id(0) * BLOCK_M
    m, d = first_m + tl.arange(0, BLOCK_M)[:, None], tl.arange(0, D)[None, :]
    q = load_tile(q_ptr + head * M * D, first_m, M, D, BLOCK_M)
    k_ptr, v_ptr = k_ptr + head * N * D, v_ptr + head * N * D
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    y = tl.zeros((BLOCK_M, D), tl.float32)
    for first in range(0, N, BLOCK_N):
        s = score_tile(q, k_ptr, first, N, scale, D, BLOCK_N)
        higher = tl.maximum(top, tl.max(s, 1))
        p, shrink = tl.exp(s - higher[:, None]), tl.exp(top - higher)
        total, top = total * shrink + tl.sum(p, 1), higher
        y = tl.dot(p.to(q.dtype), load_tile(v_ptr, first, N, D, BLOCK_N), y * shrink[:, None])
    y = (y / total[:, None]).to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + (head * M + m) * D + d, y, mask=m < M)


def v2(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Compute attention by one kernel."""
    check(q, k, v)
    made, (heads, M, D), N = buffers("v2", q, k), q.shape, k.shape[1]
    blocks = (triton.cdiv(M, BLOCK_M), heads)
    sizes = {"M": M, "N": N, "D": D, **TILE.all_kwargs()}
    flash[blocks](q, k, v, made["y"], scale=D**-0.5, **sizes)
    return made["y"]


BETWEEN: Mapping[str, tuple[str, ...]] = {"v0": ("scores", "weights"), "v1": ("weights",), "v2": ()}
"""Tensors that each step writes for the next kernel, M x N numbers a head each."""


def buffers(step: str, q: torch.Tensor, k: torch.Tensor) -> dict[str, torch.Tensor]:
    """Allocate what a step writes, by name: what is between its kernels, and the result."""
    extents = (*q.shape[:2], k.shape[1])
    return {**{name: q.new_empty(extents) for name in BETWEEN[step]}, "y": torch.empty_like(q)}


def check(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Refuse tensors that do not fit each other or the kernels; raises ValueError."""
    named: dict[str, Any] = {"q": q, "k": k, "v": v}
    what = ", ".join(f"{name} {tuple(x.shape)} {x.dtype}" for name, x in named.items())
    if any(x.ndim != 3 or 0 in x.shape for x in named.values()):
        raise ValueError(f"{what}: expected (heads, rows, dim), none of them 0")
    if k.shape != v.shape or (q.shape[0], q.shape[2]) != (k.shape[0], k.shape[2]):
        raise ValueError(f"{what}: k and v must be alike, with q's heads and dim")
    if q.shape[2] not in DIMS:
        raise ValueError(f"{what}: dim must be one of {', '.join(map(str, DIMS))}")
    if q.dtype not in DTYPES or {x.dtype for x in named.values()} != {q.dtype}:
        raise ValueError(f"{what}: the dtypes must be equal, and fp16, bf16 or fp32")
    if len({x.device for x in named.values()}) > 1:
        raise ValueError(f"{what}: all must be on one device")
    if not all(x.is_contiguous() for x in named.values()):
        raise ValueError(f"{what}: all must be contiguous; call .contiguous()")
    if q.shape[0] * q.shape[1] * k.shape[1] >= 2**31:
        raise ValueError(f"{what}: there must be fewer than 2**31 scores")
