"""Five GEMMs, C = A B, each a few lines more than the one before: read it from top to bottom.

v0 naive: one program an element of C. v1 tiled: tensor cores. v2 pipelined: loads ahead of
products, and programs in an order that shares L2. v3 autotuned: the same kernel, its config
found by asmtune. v4 epilogue: bias and activation on the tile before it is written.
`python -m benchmarks.ladder` measures them; docs/ladder.md says what each step gains.

They are to learn from: `asmtune.kernels.matmul` is the one to call.

Shapes: A is (M, K), B is (K, N), C is (M, N), bias is (N); any extents, 0 as well.
Dtypes: fp16, bf16, fp32; sums in fp32. From v1 on fp32 is multiplied as tf32.
Layout: contiguous rows, so that an element's place is row * columns + column.
Errors: ValueError for other shapes, dtypes or layouts, or 2**31 elements and more.
Source: Triton's tutorial 03 for tiles and their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune import Config, Space, asm_autotune
from asmtune.kernels.gelu import gelu_of

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
ACTIVATIONS = ("none", "relu", "gelu", "silu")


# v0: one program an element. Every element of A is read N times, every one of B M times.
@triton.jit
def naive(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK_K: tl.constexpr):  # noqa: ARG001 - M: the grid's
    """Multiply a row of A and a column of B, BLOCK_K products at a time."""
    m, n = tl.program_id(0) // N, tl.program_id(0) % N
    sums = tl.zeros((BLOCK_K,), tl.float32)
    for k in range(0, K, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + m * K + ks, mask=ks < K, other=0.0)
        b = tl.load(b_ptr + ks * N + n, mask=ks < K, other=0.0)
        sums += a.to(tl.float32) * b.to(tl.float32)
    tl.store(c_ptr + m * N + n, tl.sum(sums).to(c_ptr.dtype.element_ty))


V0 = Config({"BLOCK_K": 128}, num_warps=1)


def v0(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Compute A @ B, element by element."""
    return launched(naive, elements, arguments(a, b), V0)


# v1: one program a tile. An element of A is read once a tile, and `tl.dot` multiplies tiles.
@triton.jit
def tiled(
    a_ptr, b_ptr, c_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Compute a tile of C, tiles in the order of its rows."""
    num_n = tl.cdiv(N, BLOCK_N)
    rows = (tl.program_id(0) // num_n * BLOCK_M + tl.arange(0, BLOCK_M))[:, None]
    cols = (tl.program_id(0) % num_n * BLOCK_N + tl.arange(0, BLOCK_N))[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + rows * K + ks[None, :], (rows < M) & (ks[None, :] < K), other=0.0)
        b = tl.load(b_ptr + ks[:, None] * N + cols, (ks[:, None] < K) & (cols < N), other=0.0)
        acc = tl.dot(a, b, acc)
    c = acc.to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + rows * N + cols, c, mask=(rows < M) & (cols < N))


V1 = Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}, num_warps=4, num_stages=1)


def v1(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Compute A @ B, tile by tile."""
    return launched(tiled, tiles, arguments(a, b), V1)


# v2: larger tiles and `num_stages` above 1, so that the compiler loads the next tiles while
# the tensor cores multiply; % in the place of masks; groups of rows, so that programs that run
# at the same time read the same parts of B.
@triton.jit
def product(
    a_ptr, b_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Return a tile of A B in fp32, and its rows and columns in C."""
    num_m, num_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group = tl.program_id(0) // (GROUP_M * num_n)
    within = tl.program_id(0) % (GROUP_M * num_n)
    height = min(num_m - group * GROUP_M, GROUP_M)
    rows = (group * GROUP_M + within % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = within // height * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    # Rows beyond M are read as others, and never written.
    a = a_ptr + (rows % M)[:, None] * K + ks[None, :]
    b = b_ptr + ks[:, None] * N + (cols % N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        tile_a = tl.load(a, mask=ks[None, :] < K - k, other=0.0)
        tile_b = tl.load(b, mask=ks[:, None] < K - k, other=0.0)
        acc = tl.dot(tile_a, tile_b, acc)
        a += BLOCK_K
        b += BLOCK_K * N
    return acc, rows[:, None], cols[None, :]


@triton.jit
def pipelined(
    a_ptr, b_ptr, c_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Compute a tile of C, tiles in groups of GROUP_M rows of them."""
    acc, rows, cols = product(a_ptr, b_ptr, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M)
    c = acc.to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + rows * N + cols, c, mask=(rows < M) & (cols < N))


V2 = Config(
    {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}, num_warps=8, num_stages=3
)


def v2(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Compute A @ B, loads ahead of products."""
    return launched(pipelined, tiles, arguments(a, b), V2)


# v3: no new kernel. asmtune compiles configs of this space, reads their assembly, times few.
SPACE = Space(
    {
        "BLOCK_M": (64, 128),
        "BLOCK_N": (64, 128, 256),
        "BLOCK_K": (32, 64, 128),
        "GROUP_M": (8,),
        "num_warps": (4, 8),
        "num_stages": (2, 3, 4),
    },
    default=V2,
)

autotuned = asm_autotune(space=SPACE, key=["M", "N", "K"], effort="quick")(pipelined)


def v3(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Compute A @ B, by a config tuned for these sizes."""
    return launched(autotuned, tiles, arguments(a, b))


# v4: what follows a product in a network is done in registers, where the tile still is.
@triton.jit
def fused(
    a_ptr, b_ptr, c_ptr, M, N, K, bias_ptr, ACTIVATION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Compute a tile of the activation of A B + bias."""
    acc, rows, cols = product(a_ptr, b_ptr, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M)
    acc += tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    if ACTIVATION == "relu":
        acc = tl.maximum(acc, 0.0, propagate_nan=tl.PropagateNan.ALL)
    elif ACTIVATION == "gelu":
        acc = gelu_of(acc, TANH=False)
    elif ACTIVATION == "silu":
        acc = acc * tl.sigmoid(acc)
    c = acc.to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + rows * N + cols, c, mask=(rows < M) & (cols < N))


epilogue = asm_autotune(space=SPACE, key=["M", "N", "K"], effort="quick")(fused)


def v4(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor, activation: str = "gelu"
) -> torch.Tensor:
    """Compute the activation of A @ B + bias: "none", "relu", "gelu" (by erf) or "silu"."""
    if activation not in ACTIVATIONS:
        raise ValueError(f"v4: {activation!r} must be one of {', '.join(ACTIVATIONS)}")
    if bias.shape != b.shape[1:] or bias.dtype != b.dtype or not bias.is_contiguous():
        raise ValueError(
            f"v4: bias is {tuple(bias.shape)} {bias.dtype}; it must be contiguous, "
            f"{tuple(b.shape[1:])} {b.dtype}"
        )
    more = {"bias_ptr": bias, "ACTIVATION": activation}
    return launched(epilogue, tiles, {**arguments(a, b), **more})


def elements(meta: Mapping[str, Any]) -> tuple[int]:
    """Give v0's grid."""
    return (meta["M"] * meta["N"],)


def tiles(meta: Mapping[str, Any]) -> tuple[int]:
    """Give the grid of all others."""
    return (triton.cdiv(meta["M"], meta["BLOCK_M"]) * triton.cdiv(meta["N"], meta["BLOCK_N"]),)


def arguments(a: torch.Tensor, b: torch.Tensor) -> dict[str, Any]:
    """Make the arguments of all five launches, by name; raise ValueError if they do not fit."""
    what = f"{tuple(a.shape)} {a.dtype} and {tuple(b.shape)} {b.dtype}"
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"{what}: expected two matrices of equal inner extents")
    if a.dtype not in DTYPES or a.dtype != b.dtype:
        raise ValueError(f"{what}: the dtypes must be equal, and fp16, bf16 or fp32")
    if not (a.is_contiguous() and b.is_contiguous()):
        raise ValueError(f"{what}: both must be contiguous; call .contiguous()")
    c = a.new_empty(a.shape[0], b.shape[1])
    if max(a.numel(), b.numel(), c.numel()) >= 2**31:
        raise ValueError(f"{what}: each matrix must have fewer than 2**31 elements")
    sizes = {"M": a.shape[0], "N": b.shape[1], "K": a.shape[1]}
    return {"a_ptr": a, "b_ptr": b, "c_ptr": c, **sizes}


def launched(kernel: Any, grid: Any, given: dict[str, Any], config: Any = None) -> torch.Tensor:
    """Launch by a config or, if the kernel is tuned, by its own; return C."""
    c: torch.Tensor = given["c_ptr"]
    if c.numel():
        kernel[grid](**given, **(config.all_kwargs() if config else {}))
    return c
