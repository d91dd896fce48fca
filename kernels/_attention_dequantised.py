"""Attention with FP8 keys and values by `attention`, after they are made 16 bits wide.

Products of 16 bits are the same work either way. What the kernel of `attention_fp8` saves is bytes;
what it pays is the conversion of each tile by every block of queries that reads it. With many
queries `attention`, which has cuDNN and a kernel for Hopper to choose from, may be faster.

Keys and values times their scales are rounded to q's dtype. In fp16 they must lie within it, as
those do that were fp16 before they were quantised.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from asmtune.kernels._attention_host import Window
from asmtune.kernels._fp8 import FORMATS
from asmtune.kernels._scaled_host import extent_of_group
from asmtune.kernels.attention import attention

LEAST_QUERIES = 64
"""Least queries of a head: with fewer, to read keys takes longest, and to widen them longer."""


def by_key(scale: torch.Tensor, keys: int) -> torch.Tensor:
    """Return scales that broadcast to keys or values: of groups of keys, one for each key."""
    if scale.ndim < 4 or scale.shape[2] == 1:
        return scale
    group = extent_of_group("attention_fp8: scales", keys, scale.shape[2])
    return scale.repeat_interleave(group, 2).narrow(2, 0, keys)


def widened(x: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return keys or values times their scales, rounded once, in a dtype of 16 bits."""
    scale = scale.reshape(1, 1, 1, 1) if scale.numel() == 1 else by_key(scale, x.shape[2])
    # Both formats are exact in both dtypes. PyTorch multiplies in fp32, the scale's dtype, which
    # one without axes would not choose, and rounds in the same pass.
    return x.to(dtype).mul_(scale)


def dequantised(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale_k: torch.Tensor,
    scale_v: torch.Tensor,
    *,
    causal: bool = False,
    window: Window = None,
    padding: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    scale: float | None = None,
    vendor: bool = True,  # noqa: ARG001
) -> torch.Tensor:
    """Compute `attention_fp8` by `attention`."""
    k, v = widened(k, scale_k, q.dtype), widened(v, scale_v, q.dtype)
    options: dict[str, Any] = {"window": window, "padding": padding, "mask": mask}
    return attention(q, k, v, causal=causal, scale=scale, **options)


def launch(given: Mapping[str, Any]) -> Any:
    """Compute what a launch does from its arguments by name; return what copies the result.

    A race does not time the copy: a call of `attention_fp8` makes none.
    """
    k, v = (given[f"{name}_ptr"].view(FORMATS[given[f"FORMAT_{name.upper()}"]]) for name in "kv")
    right = (given["ahead"] or 0) if given["CAUSAL"] else None
    left = given["window"] - 1 if given["WINDOWED"] else None
    options: dict[str, Any] = {"causal": right == 0, "window": (left, right or None)}
    for name in ("padding", "mask"):
        tensor, kind = given[f"{name}_ptr"], given[name.upper()]
        is_bool = kind == (2 if name == "padding" else 1)
        options[name] = None if not kind else tensor.view(torch.bool) if is_bool else tensor
    scales = given["scale_k_ptr"], given["scale_v_ptr"]
    y = dequantised(given["q_ptr"], k, v, *scales, scale=given["scale"], **options)
    return partial(given["y_ptr"].view(y.shape).copy_, y)
