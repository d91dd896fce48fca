"""Images enlarged by bilinear interpolation: four gathers an output element."""

from __future__ import annotations

from collections.abc import Mapping

import triton
import triton.language as tl

from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import held, launch, normal


@triton.jit
def kernel(
    x_ptr,
    y_ptr,
    height,
    width,
    out_height,
    out_width,
    scale,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    """Compute a tile of one plane a program; pixel centres at halves."""
    h = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    w = tl.program_id(0) * BLOCK_W + tl.arange(0, BLOCK_W)
    x = x_ptr + tl.program_id(2) * height * width
    fh = tl.maximum((h.to(tl.float32) + 0.5) * scale - 0.5, 0.0)
    fw = tl.maximum((w.to(tl.float32) + 0.5) * scale - 0.5, 0.0)
    top = tl.minimum(fh.to(tl.int32), height - 1)
    left = tl.minimum(fw.to(tl.int32), width - 1)
    down = tl.minimum(top + 1, height - 1)
    right = tl.minimum(left + 1, width - 1)
    dh, dw = (fh - top)[:, None], (fw - left)[None, :]
    inside = (h[:, None] < out_height) & (w[None, :] < out_width)
    a = tl.load(x + top[:, None] * width + left[None, :], mask=inside).to(tl.float32)
    b = tl.load(x + top[:, None] * width + right[None, :], mask=inside).to(tl.float32)
    c = tl.load(x + down[:, None] * width + left[None, :], mask=inside).to(tl.float32)
    d = tl.load(x + down[:, None] * width + right[None, :], mask=inside).to(tl.float32)
    y = (a * (1.0 - dw) + b * dw) * (1.0 - dh) + (c * (1.0 - dw) + d * dw) * dh
    at = (tl.program_id(2) * out_height + h[:, None]) * out_width + w[None, :]
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=inside)


DTYPES = ("fp32",)

SHAPES = (
    {"planes": 96, "height": 256, "width": 256, "times": 2},
    {"planes": 16, "height": 64, "width": 64, "times": 4},
    {"planes": 77, "height": 99, "width": 131, "times": 3},
)


def space() -> Space:
    """Build the space: tile and warps."""
    axes = {
        "BLOCK_H": (1, 2, 4, 8, 16, 32),
        "BLOCK_W": (16, 32, 64, 128, 256),
        "num_warps": (1, 2, 4, 8, 16),
    }
    return held(axes, 1, 16, "BLOCK_H", "BLOCK_W")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random images."""
    planes, height, width, times = (shape[n] for n in ("planes", "height", "width", "times"))
    x = normal((planes, height, width), dtype, device)
    arguments = {"x_ptr": x, "y_ptr": x.new_empty(planes, times * height, times * width)}
    arguments |= {"scale": 1.0 / times}
    arguments |= {"out_height": times * height, "out_width": times * width}
    return launch(
        kernel, shape, arguments, (times * width, "BLOCK_W"), (times * height, "BLOCK_H"), planes
    )
