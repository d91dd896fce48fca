"""Attention with FP8 keys and values against PyTorch's fastest backend on 16-bit ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from asmtune.kernels.attention_fp8 import dequantised
from benchmarks.kernels.attention_backends import attend, fastest
from benchmarks.kernels.entry import Entry, Inputs


def vendor(given: Inputs) -> Callable[[], Any]:
    """Launch the fastest backend on the same keys and values in q's dtype, made before."""
    q, causal = given["q"], given["causal"]
    wide = {name: dequantised(given[name], given[f"scale_{name}"], q.dtype) for name in "kv"}
    return fastest(lambda: lambda: attend({"q": q, **wide}, causal), q.device)


def decodes(shape: Mapping[str, int], dtype: str) -> bool:  # noqa: ARG001
    """Say if the row has one query a head, which memory limits: its mean stands apart."""
    return shape["M"] == 1


ENTRY = Entry(
    vendor_name="scaled_dot_product_attention in 16 bits, the fastest backend",
    vendor_kind="vendor library",
    vendor=vendor,
    group="attention with FP8 keys",
    apart=decodes,
    flops=lambda s: s["B"] * s["H"] * s["M"] * s["N"] * s["D"] * (2.0 if s["causal"] else 4.0),
    rates={"fp16": "fp16", "bf16": "bf16"},
)
