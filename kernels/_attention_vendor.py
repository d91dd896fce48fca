"""The vendor's functions of attention and of its gradients, and what the vendor computes at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from asmtune.kernels._attention_host import Attending, laid
from asmtune.kernels._common import is_expanded
from asmtune.kernels._spec import by_name

_LN_2 = 0.6931471805599453


def flash(q: Any, k: Any, v: Any, causal: bool, scale: Any, sums: bool = True) -> Any:  # noqa: ARG001
    """Compute attention and natural logarithms of the sums by FlashAttention-2."""
    fused = torch.ops.aten._scaled_dot_product_flash_attention
    return fused(q, k, v, 0.0, causal, False, scale=scale)


def cudnn(q: Any, k: Any, v: Any, causal: bool, scale: Any, sums: bool = True) -> Any:
    """Compute attention, and natural logarithms of the sums if they are wanted, by cuDNN."""
    fused = torch.ops.aten._scaled_dot_product_cudnn_attention
    return fused(q, k, v, None, sums, 0.0, causal, False, scale=scale)


def in_place(kernel: Any, fused: Callable[..., Any]) -> Callable[..., Any]:
    """Return the alternative to a launch of `attention`'s kernel by a function of the vendor's.

    It returns what copies the results, which a race does not time: a call of `attention` without
    gradients makes no copy. With heads of 128 and 512 tokens it takes a quarter as long as cuDNN,
    which lost for it.
    """

    def launch(given: dict[str, Any]) -> Callable[[], None]:
        heads = (given[f"{name}_ptr"] for name in "qkv")
        y, lse, *_ = fused(*heads, given["CAUSAL"], given["scale"])

        def copy() -> None:
            given["y_ptr"].copy_(y)
            torch.mul(lse.view(given["lse_ptr"].shape), 1 / _LN_2, out=given["lse_ptr"])

        return copy

    return by_name(kernel, launch)


def gradients_in_place(kernel: Any, made_by: Callable[..., Any]) -> Callable[..., Any]:
    """Return the alternative to a launch of `attention_backward`'s kernel, as `in_place` does."""

    def launch(given: dict[str, Any]) -> Callable[[], None]:
        heads = (given[f"{name}_ptr"] for name in ("dy", "q", "k", "v", "y", "lse"))
        made = made_by(*heads, given["CAUSAL"], given["scale"])

        def copy() -> None:
            for name, gradient in zip(("dq_ptr", "dk_ptr", "dv_ptr"), made, strict=True):
                given[name].copy_(gradient)

        return copy

    return by_name(kernel, launch)


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
