"""Attention against the fastest backend of PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from asmtune.kernels._attention_host import Attending
from asmtune.kernels._attention_reference import attend_by_heads
from benchmarks.kernels.attention_backends import attend, fastest
from benchmarks.kernels.entry import Entry, Inputs


def vendor(given: Inputs) -> Callable[[], Any]:
    """Launch the fastest backend at the shape: FlashAttention-2's, cuDNN's or xFormers'."""
    detached = {**given, **{name: given[name].detach() for name in "qkv"}}
    causal = given["causal"]
    return fastest(lambda: lambda: attend(detached, causal), given["q"].device)


def exact(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> torch.Tensor:
    """Compute attention one key head after the other: scores of all heads may take 64 GiB."""
    how = Attending(causal=causal).checked("attention", q, k)
    return attend_by_heads(q, k, v, how)[0]


ENTRY = Entry(
    vendor_name="scaled_dot_product_attention, the fastest of flash, cuDNN and efficient",
    vendor_kind="vendor library",
    vendor=vendor,
    exact=exact,
    group="attention",
    flops=lambda s: s["B"] * s["H"] * s["M"] * s["N"] * s["D"] * (2.0 if s["causal"] else 4.0),
    rates={"fp16": "fp16", "bf16": "bf16"},
    dtypes=("fp16", "bf16"),
)
