"""Rotary embedding: halves (x1, x2) of a head to (x1 cos - x2 sin, x1 sin + x2 cos).

A program takes one position of the sequence, so that its cosines and sines are loaded once
and serve several of the position's rows (a row is one head of one batch entry).

Shapes: x is (seq, batch, heads, dim), dim even; cos and sin are (seq, dim // 2).
Dtypes: fp32, fp16, bf16, the same for all; computed in fp32.
Layout: x of any strides but its last, where gaps make a copy, so that batch-first models pass
a transposed x; so have cos and sin. The result is contiguous.
Source: Su et al., RoFormer: Enhanced transformer with rotary position embedding,
arXiv:2104.09864, with the halves of GPT-NeoX. Backward is the rotation by the opposite angle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.core.dtypes import torch_dtype
from asmtune.core.keys.buckets import pow2
from asmtune.core.space.space import Space
from asmtune.kernels._common import (
    FLOATS,
    as_rows,
    check_shape,
    check_tensors,
    exact,
    forward_only,
    load_columns,
    multiple,
    once_differentiable,
    problems,
    store_columns,
    vouched,
)
from asmtune.runtime.decorator import asm_autotune

_PLAIN = [
    *("seq", "batch", "heads", "dim"),
    *("stride_xs", "stride_xb", "stride_xh", "stride_cos", "stride_sin"),
]


@triton.jit(do_not_specialize=_PLAIN)
def kernel(
    x_ptr,
    cos_ptr,
    sin_ptr,
    y_ptr,
    seq,
    batch,
    heads,
    dim,
    stride_xs,
    stride_xb,
    stride_xh,
    stride_cos,
    stride_sin,
    MULTIPLE: tl.constexpr,
    STEPS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Rotate STEPS times ROWS rows of one position, BLOCK columns of each half, a program."""
    FULL: tl.constexpr = MULTIPLE % BLOCK == 0
    width, rows = vouched(dim // 2, MULTIPLE), batch * heads
    groups = tl.num_programs(0) // seq
    position = (tl.program_id(0) // groups).to(tl.int64)
    column = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    # Angles are loaded for every row of a tile: those of one row would lie with other threads
    # than the tile does, and all of x go through shared memory to meet them.
    column = tl.broadcast_to(column, (ROWS, BLOCK))
    cos_ptr += position * vouched(stride_cos, MULTIPLE)
    sin_ptr += position * vouched(stride_sin, MULTIPLE)
    cos = load_columns(cos_ptr, column, width, 0.0, FULL)
    sin = load_columns(sin_ptr, column, width, 0.0, FULL)
    x_ptr += position * vouched(stride_xs, MULTIPLE)
    y_ptr += position * rows * (2 * width)
    first = tl.program_id(0) % groups * (STEPS * ROWS)
    for step in tl.static_range(STEPS):
        # Past the last row it is done again: no mask is needed along the rows.
        row = tl.minimum(first + step * ROWS + tl.arange(0, ROWS), rows - 1)[:, None]
        # Divided in 32 bits: in 64 it would take a hundred instructions.
        entry, head = (row // heads).to(tl.int64), (row % heads).to(tl.int64)
        from_ptr = x_ptr + entry * vouched(stride_xb, MULTIPLE)
        from_ptr += head * vouched(stride_xh, MULTIPLE)
        to_ptr = y_ptr + row.to(tl.int64) * (2 * width)
        x1 = load_columns(from_ptr, column, width, 0.0, FULL)
        x2 = load_columns(from_ptr + width, column, width, 0.0, FULL)
        store_columns(to_ptr, column, width, x1 * cos - x2 * sin, FULL)
        store_columns(to_ptr + width, column, width, x1 * sin + x2 * cos, FULL)


OUTPUTS = ("y_ptr",)

DTYPES = FLOATS

SHAPES = (
    {"seq": 512, "batch": 16, "heads": 8, "dim": 1024},
    {"seq": 4096, "batch": 4, "heads": 32, "dim": 128},
    {"seq": 8192, "batch": 1, "heads": 8, "dim": 64},
    {"seq": 1000, "batch": 3, "heads": 12, "dim": 80},
)

DEFAULT = Config({"STEPS": 4, "ROWS": 2, "BLOCK": 256}, num_warps=4)
"""Four elements of each half a thread and step, 16 bytes in fp32."""


def space() -> Space:
    """Build the space: steps, rows of a position, columns of a half, and warps."""
    axes = {
        "STEPS": (1, 2, 4, 8),
        "ROWS": (1, 2, 4, 8, 16, 32),
        "BLOCK": (32, 64, 128, 256, 512, 1024),
        "num_warps": (1, 2, 4, 8),
    }
    return (
        Space(axes, default=DEFAULT)
        .where(
            "a thread has 2 to 16 elements of each half at once",
            lambda ROWS, BLOCK, num_warps: 2 <= ROWS * BLOCK // (num_warps * 32) <= 16,
        )
        .where(
            "a block is under twice as wide as a half",
            lambda BLOCK, dim: BLOCK <= 256 or dim > BLOCK,
        )
        .where(
            "under half of the rows are done again",
            lambda STEPS, ROWS, batch, heads: (
                2 * batch * heads > STEPS * ROWS or (STEPS == 1 and ROWS <= 8)
            ),
        )
    )


def _grid(values: Mapping[str, Any]) -> tuple[int, int]:
    # Positions along x with the rows, which has room for two thousand million of them.
    groups = triton.cdiv(values["batch"] * values["heads"], values["STEPS"] * values["ROWS"])
    return values["seq"] * groups, triton.cdiv(values["dim"] // 2, values["BLOCK"])


def inputs(shape: Mapping[str, int], dtype: str, device: str) -> dict[str, Any]:
    """Make random x, and the angles of position p: p / 10000 ** (2 i / dim) for column i."""
    seq, half, kind = shape["seq"], shape["dim"] // 2, torch_dtype(dtype)
    x = torch.randn(seq, shape["batch"], shape["heads"], 2 * half, device=device).to(kind)
    rates = 10000.0 ** (-torch.arange(half, device=device) / half)
    angles = torch.outer(torch.arange(seq, device=device).float(), rates)
    return {"x": x, "cos": angles.cos().to(kind), "sin": angles.sin().to(kind)}


def baseline(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Compute the kernel's result in PyTorch."""
    cos, sin = (angles[:, None, None] for angles in (cos, sin))
    x1, x2 = x.chunk(2, -1)
    return torch.cat((x1 * cos - x2 * sin, x1 * sin + x2 * cos), -1)


class _Rope(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(cos, sin)
        return _rotated(x, cos, sin)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _rotated(grad, cos, -sin), None, None


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Compute the rotary embedding by the tuned kernel, with its gradient with respect to x.

    Args:
        x: (seq, batch, heads, dim), dim even, of a dtype of DTYPES, on a GPU.
        cos: (seq, dim // 2), of the same dtype: of each position's angles.
        sin: of the same shape and dtype.

    Returns:
        A tensor of x's shape and dtype.

    Raises:
        ValueError: shapes, dtypes or devices differ, dim is odd, or a gradient of cos or sin is
            asked for.
    """
    forward_only("rope of cos and sin", cos, sin)
    check_tensors("rope", {"x": x, "cos": cos, "sin": sin}, DTYPES)
    if x.ndim != 4 or x.shape[-1] % 2:
        raise ValueError(
            f"rope: x is {tuple(x.shape)}; it must be (seq, batch, heads, dim) with an even dim"
        )
    for name, angles in (("cos", cos), ("sin", sin)):
        check_shape("rope", name, angles, (x.shape[0], x.shape[-1] // 2))
    rotated: torch.Tensor = _Rope.apply(x, cos, sin)
    return rotated


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    arguments = _arguments(x, cos, sin)
    if x.numel():
        _tuned[_grid](**arguments)
    return arguments["y_ptr"]


def _arguments(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> dict[str, Any]:
    """Give the launch's arguments by name, with room for the result."""
    x = x if x.stride(3) == 1 else x.contiguous()
    cos, sin = as_rows(cos), as_rows(sin)
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    tensors = {"x_ptr": x, "cos_ptr": cos, "sin_ptr": sin, "y_ptr": y}
    sizes = dict(zip(("seq", "batch", "heads", "dim"), x.shape, strict=True))
    strides = dict(zip(("stride_xs", "stride_xb", "stride_xh"), x.stride()[:3], strict=True))
    strides |= {"stride_cos": cos.stride(0), "stride_sin": sin.stride(0)}
    contract = {"MULTIPLE": multiple(sizes["dim"] // 2, *strides.values())}
    return {**tensors, **sizes, **strides, **contract}


problem = problems(kernel, "rope", inputs, _arguments, _grid)
reference = exact(baseline, "x_ptr", "cos_ptr", "sin_ptr")
_KEY = (pow2("seq"), pow2("batch"), "heads", "dim", "MULTIPLE")
_tuned = asm_autotune(space=space, key=_KEY)(kernel)
