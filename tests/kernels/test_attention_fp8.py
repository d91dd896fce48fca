"""Attention with FP8 keys and values: what it compiles to, and that a wrong scale shows."""

from __future__ import annotations

import re

import pytest
import torch

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.kernels import _attention_fp8, attention_fp8
from asmtune.triton_api.interpreter import exact_floats
from asmtune.workshop.kernel_checks.inputs import LAYOUTS
from tests.interpreter import Interpreter
from tests.kernels.test_scaled import ptx

DECODING = Config({"BLOCK_M": 16, "BLOCK_N": 64, "SPLIT": 8}, num_warps=4, num_stages=3)
PRODUCTS = {
    "A100": "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    "H200": "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16",
    "B200": "tcgen05.mma.cta_group::1.kind::f16",
    "RTX 5090": "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
}


@pytest.mark.slow(seconds=12)
@pytest.mark.parametrize("target", PRODUCTS)
def test_bytes_are_widened_in_registers(target: str, settings: Settings) -> None:
    """Keys come 16 bytes at once, are converted by FP8 instructions or integers, and multiplied."""
    prefill = (attention_fp8.SHAPES[0], attention_fp8.DEFAULT, PRODUCTS[target])
    decoding = (attention_fp8.SHAPES[5], DECODING, PRODUCTS["A100"])
    for shape, config, product in (prefill, decoding):
        text = ptx(settings, attention_fp8.problem(shape, "bf16", "meta"), config, target)
        assert product in text
        assert "cp.async.cg.shared.global" in text
        # Triton 3.9 converts to bf16 at once on Blackwell, as PTX 9.4 can.
        widened = re.search(r"cvt\.rn\.b?f16x2\.e4m3x2", text)
        assert (widened is not None) is (target != "A100")


@exact_floats()
def widened() -> list[str]:
    """Name the scales, formats and layouts by which keys are not widened to PyTorch's bits."""
    torch.manual_seed(0)
    wrong = []
    for dim, scales in (
        (16, ()),
        (48, (1,)),
        (16, (2, 1, 1, 1)),
        (16, (1, 3, 1, 16)),
        (48, (1, 3, 1, 48)),
        (16, (2, 3, 2, 1)),
        (48, (1, 1, 5, 1)),
        (16, (2, 1, 130, 1)),
    ):
        for kind in (torch.float8_e4m3fn, torch.float8_e5m2):
            x, scale = torch.randn(2, 3, 130, dim).to(kind), torch.rand(scales) + 0.5
            for dtype in (torch.float16, torch.bfloat16):
                for name, laid in LAYOUTS.items():
                    want = attention_fp8.dequantised(laid(x), scale, dtype)
                    got = _attention_fp8.widened(laid(x), scale, dtype)
                    if not torch.equal(got, want):
                        wrong.append(f"{scales} {kind} {dtype} {name}")
    empty = _attention_fp8.widened(x[:, :, :0], scale[:, :, :1], torch.float16)
    return wrong + ["no keys"] * (empty.shape != (2, 3, 0, dim))


@pytest.mark.slow(seconds=6)
def test_keys_are_widened(interpreter: Interpreter) -> None:
    """Keys times scales of each kind are PyTorch's bits, whatever the format and the layout."""
    assert interpreter.call("tests.kernels.test_attention_fp8:widened") == []
