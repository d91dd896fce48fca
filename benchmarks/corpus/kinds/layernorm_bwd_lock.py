"""Gradients of a norm's weights: partial sums of rows, added under a lock."""

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
    dy_ptr,
    x_ptr,
    mean_ptr,
    rstd_ptr,
    dw_ptr,
    lock_ptr,
    count_ptr,
    rows,
    cols,
    GROUPS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Process ROWS rows by BLOCK columns a program; GROUPS programs add to one of as many sums."""
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    mask = (r[:, None] < rows) & (c[None, :] < cols)
    at = r.to(tl.int64)[:, None] * cols + c[None, :]
    dy = tl.load(dy_ptr + at, mask=mask, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
    mean = tl.load(mean_ptr + r, mask=r < rows, other=0.0)
    rstd = tl.load(rstd_ptr + r, mask=r < rows, other=0.0)
    part = tl.sum(dy * (x - mean[:, None]) * rstd[:, None], 0)
    group = tl.program_id(0) % GROUPS
    lock = lock_ptr + group * tl.num_programs(1) + tl.program_id(1)
    count = count_ptr + group * tl.num_programs(1) + tl.program_id(1)
    to = dw_ptr + group * cols + c
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    if tl.load(count) == 0:
        tl.atomic_xchg(count, 1)
    else:
        part += tl.load(to, mask=c < cols, other=0.0)
    tl.store(to, part, mask=c < cols)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


DTYPES = ("bf16",)

SHAPES = (
    {"rows": 8192, "cols": 2048, "GROUPS": 64},
    {"rows": 4096, "cols": 5120, "GROUPS": 128},
)


def space() -> Space:
    """Build the space: rows, columns, warps."""
    axes = {
        "ROWS": (1, 2, 4, 8, 16),
        "BLOCK": (128, 256, 512, 1024, 2048),
        "num_warps": (1, 2, 4, 8),
    }
    return held(axes, 2, 64, "ROWS", "BLOCK")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch; locks and counts have room for the narrowest blocks."""
    rows, cols, GROUPS = shape["rows"], shape["cols"], shape["GROUPS"]
    flags = torch.zeros(2, GROUPS * triton.cdiv(cols, 128), device=device, dtype=torch.int32)
    arguments = {
        "dy_ptr": normal((rows, cols), dtype, device),
        "x_ptr": normal((rows, cols), dtype, device),
        "mean_ptr": normal((rows,), "fp32", device) * 0.1,
        "rstd_ptr": normal((rows,), "fp32", device).abs() + 0.5,
        "dw_ptr": torch.zeros(GROUPS, cols, device=device),
        "lock_ptr": flags[0],
        "count_ptr": flags[1],
    }
    return launch(kernel, shape, arguments, (rows, "ROWS"), (cols, "BLOCK"))
