"""Attention's whole backward pass against the fastest backend of PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asmtune.kernels._attention_host import Attending
from benchmarks.kernels.attention_backends import gradients
from benchmarks.kernels.entry import Entry, Inputs


def vendor(given: Inputs) -> Callable[[], Any]:
    """Launch the backend whose backward is fastest at the shape."""
    return gradients({**given, "how": Attending(causal=given["causal"])})


ENTRY = Entry(
    vendor_name="scaled_dot_product_attention backward",
    vendor_kind="vendor library",
    vendor=vendor,
    group="attention_backward",
    flops=lambda s: s["B"] * s["H"] * s["M"] * s["N"] * s["D"] * (5.0 if s["causal"] else 10.0),
    rates={"fp16": "fp16", "bf16": "bf16"},
    dtypes=("fp16", "bf16"),
)
