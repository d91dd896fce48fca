"""Attention against the fastest backend of PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.kernels.attention_backends import attend, fastest
from benchmarks.kernels.entry import Entry, Inputs


def vendor(given: Inputs) -> Callable[[], Any]:
    """Launch the fastest backend at the shape: FlashAttention-2's, cuDNN's or xFormers'."""
    detached = {**given, **{name: given[name].detach() for name in "qkv"}}
    causal = given["causal"]
    return fastest(lambda: lambda: attend(detached, causal), given["q"].device)


ENTRY = Entry(
    vendor_name="scaled_dot_product_attention, the fastest of flash, cuDNN and efficient",
    vendor_kind="vendor library",
    vendor=vendor,
    group="attention",
    flops=lambda s: s["B"] * s["H"] * s["M"] * s["N"] * s["D"] * (2.0 if s["causal"] else 4.0),
    rates={"fp16": "fp16", "bf16": "bf16"},
    dtypes=("fp16", "bf16"),
)
