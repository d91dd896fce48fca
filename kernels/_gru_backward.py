"""The gradients of a GRU layer, by one launch and one product a time step, from the last back.

The states are known, so that their parts of the gates are one product over all steps, as are the
gradients of inputs, weights and biases. Only the gradient of the state goes from step to step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.kernels._common import of_own_dtype, once_differentiable
from asmtune.kernels._gru import load_gates, sigmoid
from asmtune.runtime.decorator import asm_autotune

_BLOCK = 256


@triton.jit
def store_gates(ptr, hidden, r, z, n, inside):
    """Store the gates' parts, rounded to the tensor's dtype, where `load_gates` would load them."""
    tl.store(ptr, r.to(ptr.dtype.element_ty), mask=inside)
    tl.store(ptr + hidden, z.to(ptr.dtype.element_ty), mask=inside)
    tl.store(ptr + 2 * hidden, n.to(ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["step", "size", "hidden"])
def kernel(
    of_x_ptr, of_h_ptr, before_ptr, dy_ptr, carry_ptr, through_ptr, d_x_ptr, d_h_ptr,
    step, size, hidden, BLOCK: tl.constexpr,
):  # fmt: skip
    """Differentiate BLOCK units' gates after a step; `carry` is the state's gradient, in and out.

    With r, z and n the gates, the step was n + z * (before - n), and n = tanh(x + r * h). What
    the state gets through the gates of the step after is a product of that one's d_h and the
    weights: `through`, which is added here.
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside, first = at < size, tl.cast(step, tl.int64) * size
    gate = 3 * first + (at // hidden).to(tl.int64) * 3 * hidden + at % hidden
    before_ptr += first
    dy_ptr += first
    x_r, x_z, x_n = load_gates(of_x_ptr + gate, hidden, inside)
    h_r, h_z, h_n = load_gates(of_h_ptr + gate, hidden, inside)
    h_n = h_n.to(tl.float32)
    before = tl.load(before_ptr + at, mask=inside, other=0.0).to(tl.float32)
    r = sigmoid(x_r.to(tl.float32) + h_r.to(tl.float32))
    z = sigmoid(x_z.to(tl.float32) + h_z.to(tl.float32))
    n = 2.0 * sigmoid(2.0 * (x_n.to(tl.float32) + r * h_n)) - 1.0  # tanh
    grad = tl.load(carry_ptr + at, mask=inside, other=0.0)
    grad += tl.load(through_ptr + at, mask=inside, other=0.0).to(tl.float32)
    grad += tl.load(dy_ptr + at, mask=inside, other=0.0).to(tl.float32)
    d_n = grad * (1.0 - z) * (1.0 - n * n)
    d_z = grad * (before - n) * z * (1.0 - z)
    d_r = d_n * h_n * r * (1.0 - r)
    store_gates(d_x_ptr + gate, hidden, d_r, d_z, d_n, inside)
    store_gates(d_h_ptr + gate, hidden, d_r, d_z, d_n * r, inside)
    tl.store(carry_ptr + at, grad * z, mask=inside)


_step = asm_autotune(configs=[Config({"BLOCK": _BLOCK}, num_warps=4)])(kernel)

Layer = Callable[..., tuple[torch.Tensor, torch.Tensor]]


class _Gru(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, layer: Layer, *given: torch.Tensor) -> torch.Tensor:
        output, _ = layer(*given)
        ctx.save_for_backward(output, *given)
        return output

    @staticmethod
    @once_differentiable
    @of_own_dtype
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        output, x, h0, weight_ih, weight_hh, bias_ih, bias_hh = ctx.saved_tensors
        before = torch.cat((h0[None], output))[:-1]
        of_x = torch.nn.functional.linear(x, weight_ih, bias_ih)
        of_h = torch.nn.functional.linear(before, weight_hh, bias_hh)
        parts = (of_x.contiguous(), of_h.contiguous(), before, dy.contiguous())
        d_x, d_h, carry = _gate_gradients(*parts, weight_hh)
        rows_x, rows_h = d_x.flatten(0, 1), d_h.flatten(0, 1)
        return (
            None,
            d_x @ weight_ih,
            carry.to(h0.dtype),
            rows_x.T @ x.flatten(0, 1),
            rows_h.T @ before.flatten(0, 1),
            rows_x.sum(0),
            rows_h.sum(0),
        )


def _gate_gradients(
    of_x: torch.Tensor,
    of_h: torch.Tensor,
    before: torch.Tensor,
    dy: torch.Tensor,
    weight_hh: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Walk from the last step back; return both parts' gradients, and the first state's in fp32.

    All tensors are without gaps.
    """
    d_x, d_h = torch.empty_like(of_x), torch.empty_like(of_h)
    carry = torch.zeros(before.shape[1:], dtype=torch.float32, device=before.device)
    through = torch.zeros_like(carry, dtype=d_h.dtype)
    size, hidden = carry.numel(), before.shape[2]
    launch = _step[(triton.cdiv(size, _BLOCK),)]
    tensors = (of_x, of_h, before, dy, carry, through, d_x, d_h)
    # The host is what takes time here: tensors of a step, made for a launch, would double it.
    d_gates = d_h.unbind()
    for step in reversed(range(len(d_gates) if size else 0)):
        launch(*tensors, step, size, hidden)
        torch.mm(d_gates[step], weight_hh, out=through)
    return d_x, d_h, carry + through


def is_differentiated(*tensors: torch.Tensor) -> bool:
    """Say if autograd asks for a gradient of one of the tensors."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def differentiated(layer: Layer, *given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute a layer with its gradients.

    Args:
        layer: `gru` or `gru_step`, which is called without gradients.
        given: its arguments.

    Returns:
        The states, and the last of them.
    """
    output: torch.Tensor = _Gru.apply(layer, *given)
    return output, output[-1] if len(output) else given[1].clone()
