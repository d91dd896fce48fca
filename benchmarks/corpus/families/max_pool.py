"""Max pooling of 3 x 3 with a stride of 2, one output element after the other."""

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
    total,
    height,
    width,
    out_height,
    out_width,
    BLOCK: tl.constexpr,
):
    """Process BLOCK outputs of all images and channels a program; one element of padding."""
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = o % out_width
    row = o // out_width % out_height
    plane = o // (out_width * out_height)
    top = tl.full([BLOCK], float("-inf"), tl.float32)
    for tap in tl.static_range(9):
        h = row * 2 - 1 + tap // 3
        w = column * 2 - 1 + tap % 3
        inside = (o < total) & (h >= 0) & (h < height) & (w >= 0) & (w < width)
        x = tl.load(x_ptr + (plane * height + h) * width + w, mask=inside, other=float("-inf"))
        top = tl.maximum(top, x.to(tl.float32))
    tl.store(y_ptr + o, top.to(y_ptr.dtype.element_ty), mask=o < total)


DTYPES = ("fp16",)

SHAPES = (
    {"planes": 4096, "height": 112, "width": 112},
    {"planes": 64, "height": 56, "width": 56},
    {"planes": 999, "height": 75, "width": 101},
)


def space() -> Space:
    """Build the space: outputs, warps and a cap on registers."""
    axes = {
        "BLOCK": (32, 64, 128, 256, 512, 1024, 2048, 4096),
        "num_warps": (1, 2, 4, 8, 16),
        "maxnreg": (None, 32, 64),
    }
    return held(axes, 1, 16, "BLOCK")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random images."""
    planes, height, width = shape["planes"], shape["height"], shape["width"]
    x = normal((planes, height, width), dtype, device)
    y = x.new_empty(planes, (height + 1) // 2, (width + 1) // 2)
    arguments = {"x_ptr": x, "y_ptr": y, "total": y.numel()}
    arguments |= {"out_height": y.shape[1], "out_width": y.shape[2]}
    return launch(kernel, shape, arguments, ("total", "BLOCK"))
