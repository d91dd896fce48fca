"""A seven-point stencil in three dimensions."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import held, launch, normal


@triton.jit
def kernel(
    x_ptr,
    y_ptr,
    depth,
    height,
    width,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
    EACH: tl.constexpr,
):
    """Compute a tile of EACH planes a program; zero outside."""
    h = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)[:, None]
    w = tl.program_id(0) * BLOCK_W + tl.arange(0, BLOCK_W)[None, :]
    inside = (h < height) & (w < width)
    plane = height * width
    first = tl.program_id(2) * EACH
    for z in range(first, min(first + EACH, depth)):
        x = x_ptr + z * plane + h * width + w
        y = -6.0 * tl.load(x, mask=inside, other=0.0)
        y += tl.load(x - 1, mask=inside & (w > 0), other=0.0)
        y += tl.load(x + 1, mask=inside & (w < width - 1), other=0.0)
        y += tl.load(x - width, mask=inside & (h > 0), other=0.0)
        y += tl.load(x + width, mask=inside & (h < height - 1), other=0.0)
        y += tl.load(x - plane, mask=inside & (z > 0), other=0.0)
        y += tl.load(x + plane, mask=inside & (z < depth - 1), other=0.0)
        tl.store(y_ptr + z * plane + h * width + w, y, mask=inside)


DTYPES = ("fp32",)

SHAPES = (
    {"depth": 256, "height": 256, "width": 256},
    {"depth": 64, "height": 64, "width": 64},
    {"depth": 99, "height": 131, "width": 301},
)


def space() -> Space:
    """Build the space: tile, planes and warps."""
    axes = {
        "BLOCK_H": (1, 2, 4, 8, 16),
        "BLOCK_W": (32, 64, 128, 256),
        "EACH": (1, 8),
        "num_warps": (1, 2, 4, 8),
    }
    return held(axes, 1, 16, "BLOCK_H", "BLOCK_W")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on a random cube."""
    depth, height, width = shape["depth"], shape["height"], shape["width"]
    x = normal((depth, height, width), dtype, device)
    arguments = {"x_ptr": x, "y_ptr": torch.empty_like(x)}
    return launch(
        kernel, shape, arguments, (width, "BLOCK_W"), (height, "BLOCK_H"), (depth, "EACH")
    )
