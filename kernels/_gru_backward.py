"""The gradients of a GRU layer.

The states are known, so that their parts of the gates are one product over all steps, as are the
gradients of inputs, weights and biases. Only the gradient of the state goes from step to step, in
one launch by `_gru_backward_walk.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.kernels._common import of_own_dtype, once_differentiable
from asmtune.kernels._gru import load_gates, sigmoid
from asmtune.kernels._gru_backward_walk import state_gradients
from asmtune.runtime.decorator import asm_autotune

_BLOCK = 256


@triton.jit
def store_gates(ptr, hidden, r, z, n, inside):
    """Store the gates' parts, rounded to the tensor's dtype, where `load_gates` would load them."""
    tl.store(ptr, r.to(ptr.dtype.element_ty), mask=inside)
    tl.store(ptr + hidden, z.to(ptr.dtype.element_ty), mask=inside)
    tl.store(ptr + 2 * hidden, n.to(ptr.dtype.element_ty), mask=inside)


@triton.jit
def store_both(x_ptr, h_ptr, hidden, r, d_r, d_z, d_n, inside):
    """Store the gradients of both parts of the gates; r scales the states' part of the new gate."""
    store_gates(x_ptr, hidden, d_r, d_z, d_n, inside)
    store_gates(h_ptr, hidden, d_r, d_z, d_n * r, inside)


@triton.jit
def slopes(of_x_ptr, of_h_ptr, before, gate, hidden, inside):
    """Return r, z and what a gradient of 1 gives the three gates.

    With r, z and n the gates, the step was n + z * (before - n), and n = tanh(x + r * h).
    """
    x_r, x_z, x_n = load_gates(of_x_ptr + gate, hidden, inside)
    h_r, h_z, h_n = load_gates(of_h_ptr + gate, hidden, inside)
    h_n = h_n.to(tl.float32)
    r = sigmoid(x_r.to(tl.float32) + h_r.to(tl.float32))
    z = sigmoid(x_z.to(tl.float32) + h_z.to(tl.float32))
    n = 2.0 * sigmoid(2.0 * (x_n.to(tl.float32) + r * h_n)) - 1.0  # tanh
    d_n = (1.0 - z) * (1.0 - n * n)
    return r, z, d_n * h_n * r * (1.0 - r), (before - n) * z * (1.0 - z), d_n


@triton.jit(do_not_specialize=["size", "hidden"])
def factors(
    of_x_ptr, of_h_ptr, before_ptr, factors_ptr, keep_ptr, size, hidden, BLOCK: tl.constexpr
):
    """Compute the factors of BLOCK units, of all steps and sequences alike."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    before = tl.load(before_ptr + at, mask=inside, other=0.0).to(tl.float32)
    gate = at // hidden * 3 * hidden + at % hidden
    r, z, d_r, d_z, d_n = slopes(of_x_ptr, of_h_ptr, before, gate, hidden, inside)
    store_gates(factors_ptr + gate, hidden, d_r, d_z, d_n * r, inside)
    tl.store(keep_ptr + at, z, mask=inside)


@triton.jit(do_not_specialize=["size", "hidden"])
def gates(
    of_x_ptr, of_h_ptr, before_ptr, grad_ptr, d_x_ptr, d_h_ptr, size, hidden, BLOCK: tl.constexpr
):
    """Differentiate BLOCK units' gates, of all steps and sequences alike."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    before = tl.load(before_ptr + at, mask=inside, other=0.0).to(tl.float32)
    grad = tl.load(grad_ptr + at, mask=inside, other=0.0)
    gate = at // hidden * 3 * hidden + at % hidden
    r, _, d_r, d_z, d_n = slopes(of_x_ptr, of_h_ptr, before, gate, hidden, inside)
    store_both(
        d_x_ptr + gate, d_h_ptr + gate, hidden, r, grad * d_r, grad * d_z, grad * d_n, inside
    )


_listed = partial(asm_autotune, configs=[Config({"BLOCK": _BLOCK}, num_warps=4)])
_factors, _gates = _listed()(factors), _listed()(gates)

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
        if before.numel():
            d_x, d_h, carry = _walked_back(*parts, weight_hh.contiguous())
        else:
            d_x, d_h, carry = *map(torch.zeros_like, parts[:2]), torch.zeros_like(h0)
        rows_x, rows_h = d_x.flatten(0, 1), d_h.flatten(0, 1)
        each: tuple[Callable[[], torch.Tensor], ...] = (
            lambda: d_x @ weight_ih,
            lambda: carry.to(h0.dtype),
            lambda: rows_x.T @ x.flatten(0, 1),
            lambda: rows_h.T @ before.flatten(0, 1),
            lambda: rows_x.sum(0),
            lambda: rows_h.sum(0),
        )
        needed = zip(each, ctx.needs_input_grad[1:], strict=True)
        return (None, *(make() if is_needed else None for make, is_needed in needed))


Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _walked_back(
    of_x: torch.Tensor,
    of_h: torch.Tensor,
    before: torch.Tensor,
    dy: torch.Tensor,
    weight_hh: torch.Tensor,
) -> Gradients:
    """Walk back in one launch; return both parts' gradients, and the first state's in fp32.

    All tensors are without gaps.
    """
    size, hidden = before.numel(), before.shape[2]
    d_x, d_h = torch.empty_like(of_x), torch.empty_like(of_h)
    keep = torch.empty_like(before, dtype=torch.float32)
    blocks = (triton.cdiv(size, _BLOCK),)
    # The factors lie where the gradients of the gates will.
    _factors[blocks](of_x, of_h, before, d_h, keep, size, hidden)
    grads, first = state_gradients(d_h, keep, dy, weight_hh)
    _gates[blocks](of_x, of_h, before, grads, d_x, d_h, size, hidden)
    return d_x, d_h, first


def is_differentiated(*tensors: torch.Tensor) -> bool:
    """Say if autograd asks for a gradient of one of the tensors."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def differentiated(layer: Layer, *given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute a layer with its gradients.

    Returns:
        The states, and the last of them.
    """
    output: torch.Tensor = _Gru.apply(layer, *given)
    return output, output[-1] if len(output) else given[1].clone()
