"""Attention with FP8 keys and values: what it compiles to, and that a wrong scale shows."""

from __future__ import annotations

import pytest

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.kernels import attention_fp8
from tests.interpreter import Interpreter
from tests.kernels.cases.attention_fp8 import error, made
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
        assert ("cvt.rn.f16x2.e4m3x2" in text) is (target != "A100")


def wrong_scales() -> dict[str, float]:
    """Return the errors where one of the scales that the kernel reads is half as large again."""
    found = {}
    for group in (0, -1, 20, 128):
        given = made("cpu", 1, 2, 2, 40, 130 if group == 128 else 60, 64, 0, group)
        assert error(given) <= 1
        for name in ("scale_k", "scale_v"):
            other = given[name].clone()
            other.view(-1)[-1] *= 1.5
            found[f"{name} of {group}"] = error(given, read={name: other})
    return found


@pytest.mark.slow(seconds=3)
def test_a_wrong_scale_shows(interpreter: Interpreter) -> None:
    """A scale of any granularity that is wrong in one place breaks the bound on errors."""
    found = interpreter.call("tests.kernels.test_attention_fp8:wrong_scales")
    assert len(found) == 8
    assert {what: error for what, error in found.items() if error <= 1} == {}
