"""Kernels on bf16 and FP8 under Triton's interpreter, against PyTorch's casts and arithmetic."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import torch
import triton
import triton.language as tl
from triton.runtime.interpreter import TensorHandle, interpreter_builder

from asmtune.triton_api.interpreter import (
    backwards,
    exact_floats,
    is_interpreting,
    quick_interpreter,
)

NARROW = {
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "bf16": torch.bfloat16,
}


@triton.jit
def cast(x_ptr, y_ptr, n, ROUNDING: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, x.to(y_ptr.dtype.element_ty, ROUNDING), mask=at < n)


@triton.jit
def arithmetic(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    total = tl.full((BLOCK,), 0.5, tl.bfloat16)
    for _ in range(3):
        total += x * y
    tl.store(out_ptr + at, total)
    tl.store(out_ptr + BLOCK + at, tl.where(x > y, -x * 2.0, tl.maximum(x, y)))
    tl.store(out_ptr + 2 * BLOCK + at, tl.fma(x, y, y) / x + (x > y).to(tl.bfloat16))


@triton.jit
def reductions(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at[:, None] * BLOCK + at[None, :])
    tl.store(out_ptr + at, tl.sum(x, 1))
    tl.store(out_ptr + BLOCK + at, tl.max(x, 1))
    tl.store(out_ptr + 2 * BLOCK + at, tl.argmin(x, 1))
    tl.store(out_ptr + 3 * BLOCK + at, tl.sum(tl.cumsum(x, 1) * (at[None, :] == 5), 1))
    tl.store(out_ptr + 4 * BLOCK + at, tl.sum(tl.sum(x, 1), 0) + at)


@triton.jit
def product(x_ptr, y_ptr, out_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    tl.store(out_ptr + at, tl.dot(tl.load(x_ptr + at), tl.load(y_ptr + at)))


def _converted(x: torch.Tensor, dtype: torch.dtype, rounding: str | None = None) -> torch.Tensor:
    y = torch.empty_like(x, dtype=dtype)
    cast[(triton.cdiv(x.numel(), 1 << 14),)](x, y, x.numel(), rounding, BLOCK=1 << 14)
    return y


def _differing(x: torch.Tensor, y: torch.Tensor) -> int:
    return int(((x != y) & ~(x.isnan() & y.isnan())).sum())


def wrong_casts(name: str, exact: bool) -> dict[str, int]:
    """Count numbers that are cast otherwise than PyTorch does, to a dtype and back to fp32."""
    dtype = NARROW[name]
    every = torch.arange(1 << 8 * dtype.itemsize).to(
        {1: torch.uint8, 2: torch.int16}[dtype.itemsize]
    )
    known = every.view(dtype).float()
    ties = (known[1:] + known[:-1]) / 2
    patterns = torch.randint(-(1 << 31), 1 << 31, (1 << 14,)).to(torch.int32).view(torch.float32)
    x = torch.cat([known, ties, patterns, torch.randn(1 << 14) * 100, torch.tensor([124.3, 464.0])])
    most = torch.finfo(dtype).max
    limited = x.clamp(-most, most) if dtype.itemsize == 1 else x  # FP8 saturates
    want = limited.to(dtype).float()
    if not exact:
        return {"near": _differing(_converted(x, dtype).float(), want)}
    with exact_floats():
        near, cut = _converted(x, dtype).float(), _converted(x, dtype, "rtz").float()
        wide = _converted(every.view(dtype), torch.float32)
    inside = limited.isfinite()
    one_less = torch.where(want.abs() > limited.abs(), cut.abs() < limited.abs(), cut == want)
    return {
        "near": _differing(near, want),
        "towards zero": int((~one_less & inside).sum()),
        "wide": _differing(wide, known),
    }


def wrong_bf16() -> dict[str, int]:
    """Count results of bf16 arithmetic that differ from PyTorch's, rounded at each step."""
    x, y = torch.randn(2, 1024).bfloat16()
    out = torch.empty(3, 1024, dtype=torch.bfloat16)
    a, b = torch.randn(2, 32, 32).bfloat16()
    products = torch.empty(32, 32)
    with exact_floats():
        arithmetic[(1,)](x, y, out, BLOCK=1024)
        product[(1,)](a, b, products, SIZE=32)
    total = torch.full_like(x, 0.5)
    for _ in range(3):
        total = total + x * y
    chosen = torch.where(x > y, -x * 2, torch.maximum(x, y))
    fused = (x.double() * y.double() + y.double()).float().bfloat16()
    fused = (fused.float() / x + (x > y)).bfloat16()  # Triton divides in fp32
    found = {
        name: _differing(mine, want)
        for name, mine, want in zip(
            ("sum", "choice", "fma"), out, (total, chosen, fused), strict=True
        )
    }
    x = torch.randn(64, 64).bfloat16()
    out = torch.empty(5, 64, dtype=torch.bfloat16)
    with exact_floats():
        reductions[(1,)](x, out, BLOCK=64)
    sums = x.float().sum(1).bfloat16()
    wanted = {
        "row sums": sums,
        "maximum": x.amax(1),
        "index": x.argmin(1).bfloat16(),
        "running sum": x[:, :6].float().sum(1).bfloat16(),
        "whole sum": sums.float().sum().bfloat16() + torch.arange(64).bfloat16(),
    }
    found |= {name: _differing(out[row], want) for row, (name, want) in enumerate(wanted.items())}
    return {**found, "dot": int(((products - a.double() @ b.double()).abs() > 1e-4).sum())}


def left_after() -> list[str]:
    """Name what of the interpreter is not as it was, once the correction has ended."""
    from triton.language import core
    from triton.runtime import interpreter

    launch = interpreter.GridExecutor
    owners = (interpreter, interpreter.InterpreterBuilder, launch, core.block_type, core.tensor)
    before = [dict(vars(owner)) for owner in owners]
    with exact_floats(), exact_floats():
        changed = [dict(vars(owner)) for owner in owners]
    assert all(one != other for one, other in zip(before, changed, strict=True))
    return [
        name
        for owner, values in zip(owners, before, strict=True)
        for name in values.keys() | vars(owner).keys()
        if values.get(name) is not vars(owner).get(name)
    ]


@triton.jit
def _larger(x, y):
    return tl.where(x > y, x, y)


@triton.jit
def _doubled(x):
    return (tl.reduce(x, 1, _larger) + x.shape[0]) * 2


@triton.jit
def nested(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at[:, None] * 4 + tl.arange(0, 4)[None, :])
    tl.store(out_ptr + at, _doubled((x * 100).to(tl.int32)) * 1000 + _doubled(x))


def quick_and_plain() -> list[list[float]]:
    """Return the results of a kernel of functions, types and shapes, hastened and as it is."""
    found = []
    for hasten in (quick_interpreter, nullcontext):
        for size in (8, 16):
            torch.manual_seed(0)
            x, out = torch.randn(size, 4), torch.empty(size)
            with hasten():
                nested[(1,)](x, out, BLOCK=size)
            found.append(out.tolist())
    return [found[0] + found[1], found[2] + found[3]]


@triton.jit
def by_condition(out_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, at, mask=(at < n) & (tl.program_id(0) == 0))


@triton.jit
def ordered(count_ptr, out_ptr):
    tl.store(out_ptr + tl.program_id(0), tl.atomic_add(count_ptr, 1))


def orders() -> list[list[int]]:
    """Return when each program of a grid ran: as ever, and backwards."""
    found = []
    for order in (nullcontext(), backwards()):
        count, out = torch.zeros(1, dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
        with order:
            ordered[(4,)](count, out)
        found.append(out.tolist())
    assert is_interpreting()
    return found


def masked() -> tuple[list[float], str]:
    """Return what is stored by a block and one condition, and the dtype of a condition's block."""
    out = torch.full((8,), -1.0)
    numbers = TensorHandle(np.array([3], np.int32), tl.int32)
    with exact_floats():
        by_condition[(2,)](out, 5, BLOCK=8)
        condition = interpreter_builder.create_icmpEQ(numbers, numbers)
        block = interpreter_builder.create_splat(tl.block_type(tl.int1, [4]), condition)
    return out.tolist(), str(block.data.dtype)
