"""First launches inside the user's modes on a GPU, with real kernels."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton

from asmtune import Config, Space, asm_autotune
from tests.dispatch.test_user_state import Functions, Operations
from tests.gpu import gpu_kernels

SPACE = Space({"BLOCK": (256, 512, 1024), "num_warps": (2, 4)}, default=Config({"BLOCK": 256}))
N = 1 << 16


def summed(kernel: Any, x: torch.Tensor) -> torch.Tensor:
    """Add a vector to itself."""
    out, n = torch.empty_like(x), x.numel()
    kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, x, out, n)
    return out


@pytest.mark.parametrize("on_miss", ["tune", "predict", "background"])
def test_modes_see_nothing_of_a_first_launch(on_miss: str) -> None:
    """A launch that tunes shows modes no operation, and as few functions as any first launch."""
    x = torch.arange(float(N), device="cuda")
    kernel = asm_autotune(space=SPACE, key=["n"], skip_tuning_below_us=None, on_miss=on_miss)(
        gpu_kernels.add
    )
    torch.zeros_like(x)
    with Operations() as operations, Functions() as functions:
        out = summed(kernel, x)
    assert len(operations.seen) == 1  # the output
    assert len(functions.seen) < 60
    torch.testing.assert_close(out, 2 * x)
