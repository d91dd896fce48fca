"""fp8 (e4m3) with a scale for every 128 of a row, in tiles."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from asmtune.core.dtypes import torch_dtype
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import launch


@triton.jit
def kernel(
    x_ptr,
    scale_ptr,
    y_ptr,
    rows,
    groups,
    ROWS: tl.constexpr,
    GROUPS: tl.constexpr,
):
    """Compute ROWS rows and GROUPS groups of 128 a program."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    g = tl.program_id(1) * GROUPS + tl.arange(0, GROUPS)
    which = r[:, None] * groups + g[None, :]
    inside = (r[:, None] < rows) & (g[None, :] < groups)
    at = which[:, :, None] * 128 + tl.arange(0, 128)[None, None, :]
    x = tl.load(x_ptr + at, mask=inside[:, :, None], other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(x), 2), 1e-8) / 448.0
    tl.store(scale_ptr + which, scale, mask=inside)
    y = (x / scale[:, :, None]).to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + at, y, mask=inside[:, :, None])


DTYPES = ("bf16",)

SHAPES = (
    {"rows": 8192, "groups": 56},
    {"rows": 64, "groups": 16},
    {"rows": 30001, "groups": 5},
)


def space() -> Space:
    """Build the space: rows, groups and warps."""
    axes = {
        "ROWS": (1, 2, 4, 8, 16, 32),
        "GROUPS": (1, 2, 4, 8, 16),
        "num_warps": (1, 2, 4, 8, 16),
    }
    return Space(axes).where(
        "a thread holds 2 to 64 elements",
        lambda ROWS, GROUPS, num_warps: 2 <= ROWS * GROUPS * 4 // num_warps <= 64,
    )


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on rows that fp8 holds exactly: Triton's interpreter truncates, GPUs round."""
    rows, groups = shape["rows"], shape["groups"]
    x = torch.randn(rows, groups * 128, device=device).to(torch.float8_e4m3fn).float()
    x[:, ::128] = 448.0
    x = (x * 2.0 ** (torch.arange(rows, device=device)[:, None] % 5 - 4)).to(torch_dtype(dtype))
    arguments = {
        "x_ptr": x,
        "scale_ptr": torch.empty(rows, groups, device=device),
        "y_ptr": torch.empty(x.shape, device=device, dtype=torch.float8_e4m3fn),
    }
    return launch(kernel, shape, arguments, (rows, "ROWS"), (groups, "GROUPS"))
