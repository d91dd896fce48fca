"""Attention's gradients of queries against all three of PyTorch's.

It has no function for fewer.
The whole backward pass is both `attention_backward_q` and `attention_backward_kv`: as many times
as fast as PyTorch's as 1 / (1 / a + 1 / b) says for their speedups a and b.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.kernels.attention_backends import gradients
from benchmarks.kernels.entry import Entry, Inputs


def vendor(given: Inputs) -> Callable[[], Any]:
    """Launch the backend whose backward is fastest at the shape."""
    delta = (given["dy"].float() * given["y"].float()).sum(-1)
    all_three = gradients(given)
    return lambda: (all_three()[0], delta)


ENTRY = Entry(
    vendor_name="scaled_dot_product_attention backward, all three gradients",
    vendor_kind="vendor library",
    vendor=vendor,
    group="attention backward, a part",
    flops=lambda s: s["B"] * s["H"] * s["M"] * s["N"] * s["D"] * (3.0 if s["causal"] else 6.0),
    rates={"fp16": "fp16", "bf16": "bf16"},
    dtypes=("fp16", "bf16"),
)
