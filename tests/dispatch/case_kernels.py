"""What the cases of Triton's own tests share, with a GPU and without: kernels, and a check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl


@triton.jit
def copy_as(x_ptr, out_ptr, n, DTYPE: tl.constexpr, BLOCK: tl.constexpr):
    """Copy by way of a dtype."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n).to(DTYPE), mask=at < n)


@triton.jit
def increment(x_ptr, n, BLOCK: tl.constexpr):
    """Add one in place."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) + 1, mask=at < n)


@triton.jit
def fill_either(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Write ones into `x_ptr`, or into `out_ptr` where there is none."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ones = tl.full([BLOCK], 1.0, tl.float32)
    if x_ptr is not None:
        tl.store(x_ptr + at, ones, mask=at < n)
    else:
        tl.store(out_ptr + at, ones, mask=at < n)


@triton.jit
def staged(x_ptr, n, STAGES: tl.constexpr, BLOCK: tl.constexpr):
    """Copy in place in a pipelined loop."""
    at = tl.arange(0, BLOCK)
    for _ in tl.range(tl.cdiv(n, BLOCK), num_stages=STAGES):
        tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)
        at += BLOCK


def check_listener(
    kernel: Any, launch: Callable[[], Any], heard: list[dict[str, Any]], *, alone: bool
) -> None:
    """That Triton's listener hears of a tuning once, of a stored config once, of memory never.

    Args:
        kernel: not launched yet.
        launch: launches it, with one key each time.
        heard: what the listener was told.
        alone: whether it has one config, which is not tuned.
    """
    for _ in range(2):
        launch()
    if alone:
        assert heard == []
        return
    (told,) = heard
    assert isinstance(told["fn"], triton.JITFunction)
    assert told["best_config"] in told["configs_timings"]
    assert len(told["configs_timings"]) == 2
    assert told["duration"] > 0
    assert not told["cache_hit"]
    kernel.cache.clear()
    launch()
    assert (heard[1]["cache_hit"], heard[1]["duration"]) == (True, None)
