"""Keys of new tokens into the pages of a cache, by slot; some tokens have none."""

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
    key_ptr,
    slot_ptr,
    cache_ptr,
    tokens,
    width,
    scale,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Process ROWS tokens by BLOCK elements a program."""
    t = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    slot = tl.load(slot_ptr + t, mask=t < tokens, other=-1).to(tl.int64)
    mask = (slot >= 0)[:, None] & (c[None, :] < width)
    key = tl.load(key_ptr + t.to(tl.int64)[:, None] * width + c[None, :], mask=mask, other=0.0)
    value = (key.to(tl.float32) * scale).to(cache_ptr.dtype.element_ty)
    tl.store(cache_ptr + slot[:, None] * width + c[None, :], value, mask=mask)


DTYPES = ("bf16",)

SHAPES = (
    {"tokens": 16384, "width": 1024, "slots": 65536},
    {"tokens": 500, "width": 8192, "slots": 4096},
)


def space() -> Space:
    """Build the space: tokens, elements, warps."""
    axes = {
        "ROWS": (1, 2, 4, 8, 16),
        "BLOCK": (64, 128, 256, 512, 1024, 2048),
        "num_warps": (1, 2, 4, 8),
    }
    return held(axes, 1, 64, "ROWS", "BLOCK")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random slots; one token of eight has none."""
    tokens, width = shape["tokens"], shape["width"]
    slot = torch.randperm(shape["slots"])[:tokens].to(torch.int32)
    slot[::8] = -1
    arguments = {
        "key_ptr": normal((tokens, width), dtype, device),
        "slot_ptr": slot.to(device),
        "cache_ptr": torch.zeros(shape["slots"], width, device=device, dtype=torch.float16),
        "scale": 0.5,
    }
    return launch(kernel, shape, arguments, (tokens, "ROWS"), (width, "BLOCK"))
