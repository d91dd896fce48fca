"""2-D convolution as an implicit matrix product: NHWC, stride 1, same padding, fp16."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from asmtune.core.dtypes import torch_dtype
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import bounded, launch


@triton.jit
def kernel(
    x_ptr,
    w_ptr,
    y_ptr,
    batch,
    height,
    width,
    C,
    K,
    TAPS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Compute BLOCK_M pixels by BLOCK_N channels a program; w is (TAPS, TAPS, C, K)."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    col = m % width
    row = (m // width) % height
    image = m // (width * height)
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    blocks = tl.cdiv(C, BLOCK_K)
    for i in range(TAPS * TAPS * blocks):
        tap = i // blocks
        c = (i % blocks) * BLOCK_K + k
        r = row + tap // TAPS - TAPS // 2
        s = col + tap % TAPS - TAPS // 2
        pixel = (image < batch) & (r >= 0) & (r < height) & (s >= 0) & (s < width)
        at = ((image * height + r) * width + s) * C
        x = tl.load(x_ptr + at[:, None] + c[None, :], pixel[:, None] & (c[None, :] < C), other=0.0)
        inside = (c[:, None] < C) & (n[None, :] < K)
        w = tl.load(w_ptr + (tap * C + c[:, None]) * K + n[None, :], mask=inside, other=0.0)
        acc = tl.dot(x, w, acc)
    inside = (image < batch)[:, None] & (n[None, :] < K)
    tl.store(y_ptr + m[:, None] * K + n[None, :], acc.to(y_ptr.dtype.element_ty), mask=inside)


DTYPES = ("fp16",)

SHAPES = (
    {"batch": 16, "height": 56, "width": 56, "C": 128, "K": 128, "taps": 3},
    {"batch": 1, "height": 14, "width": 14, "C": 256, "K": 256, "taps": 3},
    {"batch": 8, "height": 112, "width": 112, "C": 64, "K": 256, "taps": 1},
    {"batch": 3, "height": 33, "width": 35, "C": 96, "K": 200, "taps": 5},
)


def space() -> Space:
    """Build the space: tile, stages and warps."""
    axes = {
        "BLOCK_M": (32, 64, 128, 256),
        "BLOCK_N": (32, 64, 128),
        "BLOCK_K": (32, 64),
        "num_warps": (2, 4, 8),
        "num_stages": (2, 3, 4),
    }
    return bounded(axes, 128, 2)


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random images and filters."""
    batch, height, width, C, K = (shape[n] for n in ("batch", "height", "width", "C", "K"))
    taps, kind = shape["taps"], torch_dtype(dtype)
    x = torch.randn(batch, height, width, C, device=device, dtype=kind)
    w = torch.randn(taps, taps, C, K, device=device, dtype=kind)
    arguments = {"x_ptr": x, "w_ptr": w, "y_ptr": x.new_empty(batch, height, width, K)}
    arguments |= {"TAPS": taps}
    pixels = batch * height * width
    return launch(kernel, shape, arguments, (pixels, "BLOCK_M"), (K, "BLOCK_N"))
