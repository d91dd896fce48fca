"""Kernels whose outputs depend on the config: right ones are timed, and callers read the best."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
import triton
from torch import Tensor

from asmtune import asm_autotune
from tests.measure import workspace_kernels as kernels

DIM, STEPS, HEADS, LEAST = 4000, 6, 48, 64
BLOCKS = (512, 64, 128, 256, 1024)


def configs() -> list[triton.Config]:
    return [triton.Config({"BLOCK": block, "HOLE": 0}) for block in BLOCKS]


def grid(meta: Mapping[str, Any]) -> tuple[int, int]:
    return triton.cdiv(meta["dim"], meta["BLOCK"]), HEADS


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator("cuda").manual_seed(5)
    dout, out = torch.randn(2, HEADS, STEPS, DIM, device="cuda", generator=generator)
    return dout, out, -torch.rand(HEADS, STEPS, device="cuda", generator=generator)


def expected_sums(dout: Tensor, out: Tensor, scale: Tensor) -> Tensor:
    state = torch.zeros(HEADS, DIM, dtype=torch.float64, device="cuda")
    sums = torch.zeros(HEADS, STEPS, dtype=torch.float64, device="cuda")
    for step in range(STEPS - 1, 0, -1):
        factor = scale[:, step].double().exp()
        sums[:, step] = (out[:, step] * state).sum(1) * factor
        state = factor[:, None] * state + dout[:, step]
    return sums


def launch(kernel: Any, tensors: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Launch, and add up as many parts as the config that ran has made."""
    dout, out, scale = tensors
    partial = torch.full((HEADS, STEPS, triton.cdiv(DIM, LEAST)), torch.nan, device="cuda")
    strides = DIM, STEPS * DIM, partial.stride(1), partial.stride(0)
    kernel[grid](dout, out, scale, torch.empty_like(dout), partial, DIM, STEPS, *strides)
    count = triton.cdiv(DIM, kernel.best_config.kwargs["BLOCK"])
    return partial[..., :count].sum(-1)


@pytest.mark.parametrize("isolate", [False, True])
def test_every_block_is_timed(isolate: bool) -> None:
    """No block fails the check, though each leaves another number of sums."""
    options = {"effort": "exhaustive", "skip_tuning_below_us": None, "isolate": isolate}
    kernel = asm_autotune(configs(), key=["dim"], **options)(kernels.state_backward)
    tensors = inputs()
    expected = expected_sums(*tensors)
    for _ in range(2):
        sums = launch(kernel, tensors)
        torch.testing.assert_close(sums.double(), expected, rtol=1e-3, atol=1e-2)
    timed = {config.kwargs["BLOCK"] for config in kernel.configs_timings}
    assert timed == set(BLOCKS)
