"""The kernels that the contracts of Triton's and PyTorch's internals are shown on."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

FACTOR: tl.constexpr = tl.constexpr(3)
LIMIT = 7


@triton.jit
def twice(value):
    """Return twice a value."""
    return value * 2


@triton.jit
def tiny(x_ptr, n, scale=2.0, BLOCK: tl.constexpr = 16):
    """Double n numbers in place."""
    at = tl.arange(0, BLOCK)
    value = twice(tl.load(x_ptr + at, mask=at < n))
    tl.store(x_ptr + at, value * FACTOR * scale, mask=at < n)


@triton.jit
def tuned(x_ptr, n, BLOCK: tl.constexpr):
    """Clear n numbers."""
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, 0.0, mask=at < n)


def grid(_: Any) -> tuple[int]:
    """One program."""
    return (1,)


ruled = triton.heuristics({"BLOCK": lambda given: 2 * given["n"]})(tuned)
CONFIGS = [triton.Config({"BLOCK": 16}, num_warps=2), triton.Config({"BLOCK": 32})]
autotuned = triton.autotune(CONFIGS, key=["n"], reset_to_zero=["x_ptr"])(tuned)


@triton.jit
def stored(target):
    """Write a tile by the copy engine."""
    target.store([0, 0], target.load([0, 0]))
