"""The vendor's functions of attention's backward, and what the vendor computes at all."""

from __future__ import annotations

from typing import Any

import torch

from asmtune.kernels._attention_host import Attending, laid
from asmtune.kernels._common import is_expanded

_LN_2 = 0.6931471805599453


def flash_gradients(
    dy: Any, q: Any, k: Any, v: Any, y: Any, lse: Any, causal: bool, scale: float
) -> tuple[torch.Tensor, ...]:
    """Compute the gradients by FlashAttention-2, whose lse is a natural logarithm."""
    fused = torch.ops.aten._scaled_dot_product_flash_attention_backward
    # Read for dropout alone.
    state = torch.empty(2, dtype=torch.uint64, device=q.device)
    extents = (None, None, q.shape[2], k.shape[2])
    options = (0.0, causal, state, state[0])
    made: tuple[torch.Tensor, ...]
    made = fused(dy, q, k, v, y, lse * _LN_2, *extents, *options, scale=scale)
    return made


def cudnn_gradients(
    dy: Any, q: Any, k: Any, v: Any, y: Any, lse: Any, causal: bool, scale: float
) -> tuple[torch.Tensor, ...]:
    """Compute the gradients by cuDNN, whose lse is a natural logarithm with a last axis of 1."""
    fused = torch.ops.aten._scaled_dot_product_cudnn_attention_backward
    state = torch.empty((), dtype=torch.int64, device=q.device)  # read for dropout alone
    extents = (state, state, None, None, None, q.shape[2], k.shape[2])
    made: tuple[torch.Tensor, ...]
    sums = (lse * _LN_2)[..., None]
    made = fused(dy, q, k, v, y, sums, *extents, 0.0, causal, scale=scale)
    return made


def dense_heads(x: torch.Tensor) -> torch.Tensor:
    """Return the tensor if its rows are dense, aligned and in memory of their own; else a copy."""
    return laid(x.contiguous() if is_expanded(x) else x)


def flash(*values: Any) -> tuple[torch.Tensor, ...]:
    """Compute `attention_backward` by FlashAttention-2."""
    return flash_gradients(*plain_arguments(*values))


def cudnn(*values: Any) -> tuple[torch.Tensor, ...]:
    """Compute `attention_backward` by cuDNN."""
    return cudnn_gradients(*plain_arguments(*values))


def plain_arguments(
    dy: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, y: torch.Tensor,
    lse: torch.Tensor, causal: bool = False, *rest: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """Return the heads as a launch has them, whether keys are causal, and the scale."""
    scale = rest[5] if len(rest) > 5 else None
    heads = (*map(dense_heads, (dy, q, k, v, y)), lse.contiguous())
    return (*heads, causal, q.shape[-1] ** -0.5 if scale is None else scale)


def has_vendor(q: torch.Tensor, k: torch.Tensor, how: Attending) -> bool:
    """Return whether the vendor's functions compute the same.

    Theirs have no windows, other padding, masks and dropout, and a diagonal that ends at the last
    query and key. A key of the kernel's holds more than that.
    """
    return how.is_plain and (not how.causal or q.shape[2] == k.shape[2])
