"""The gradients of a GRU layer.

The states are known, so that their parts of the gates are one product over all steps, as are the
gradients of inputs, weights and biases. Only the gradient of the state goes from step to step, in
one launch for all steps, from the last back.

The gradient of a state is linear in g, the gradient of the next step's result. Each gate's part
is g times a factor that the states decide. The state gets the products of these parts with the
weights, and g times the update gate. So programs send each other g, as `gru` sends states, and
load the factors of all units. Each program holds the weights of UNITS units in registers.

The factors of a step are loaded during the step before it: they come from memory, and the step
would wait for them.

Rounded to the dtype are the factors, their products with g, and, with several lanes, the g that
programs send. With several lanes products of fp32 are tf32. Sums, update gates and a unit's own g
are fp32: the gates multiply g at every step, and bf16 would round 0.9985 to 1.

Source: as of `gru`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.core.dtypes import torch_dtype
from asmtune.core.problem import Problem
from asmtune.kernels._common import of_own_dtype, once_differentiable, vouched
from asmtune.kernels._gru import DEFAULT as DEFAULT
from asmtune.kernels._gru import (
    LAUNCHED_AT_ONCE,
    add_parts,
    exchange,
    grid,
    load_gates,
    places,
    sigmoid,
    space,
    split,
    warps_apart,
)
from asmtune.kernels._gru_words import begin, leave, received, send, words_of
from asmtune.runtime.decorator import asm_autotune


@triton.jit
def shared_out(part, SPLIT: tl.constexpr, TEAMS: tl.constexpr, ELEMENT: tl.constexpr):
    """Round a gate's part to the weights' dtype, and give each team of warps all of it."""
    part = part.to(ELEMENT)
    if TEAMS > 1:
        TERMS: tl.constexpr = part.shape[1]
        LANES: tl.constexpr = part.shape[2]
        part = tl.broadcast_to(part[None, :, :, :], (TEAMS, SPLIT, TERMS, LANES))
        part = tl.reshape(part, (TEAMS * SPLIT, TERMS, LANES))
    return part


@triton.jit
def through_gates(
    weights, factors, g, LANES: tl.constexpr, SPLIT: tl.constexpr, TEAMS: tl.constexpr
):
    """Compute what states get through the three gates, in fp32."""
    w_r, w_z, w_n = weights
    ELEMENT: tl.constexpr = w_r.dtype
    g = g.to(tl.float32)
    r, z, n = (
        factors[0].to(tl.float32) * g,
        factors[1].to(tl.float32) * g,
        factors[2].to(tl.float32) * g,
    )
    if LANES == 1:
        terms = w_r.to(tl.float32) * r[None, :] + w_z.to(tl.float32) * z[None, :]
        return tl.sum(terms + w_n.to(tl.float32) * n[None, :], 1)
    else:  # noqa: RET505 (Triton compiles what follows a return)
        sums = tl.dot(w_r, shared_out(r, SPLIT, TEAMS, ELEMENT))
        sums = tl.dot(w_z, shared_out(z, SPLIT, TEAMS, ELEMENT), sums)
        sums = tl.dot(w_n, shared_out(n, SPLIT, TEAMS, ELEMENT), sums)
        if SPLIT * TEAMS > 1:
            sums = add_parts(sums, SPLIT, TEAMS)
        return sums


@triton.jit(do_not_specialize=["seq", "batch"])
def kernel(
    factors_ptr, keep_ptr, dy_ptr, weight_ptr, grad_ptr, first_ptr, words_ptr,
    seq, batch, hidden,
    MULTIPLE: tl.constexpr, WIDTH: tl.constexpr,
    SIZE: tl.constexpr,  # noqa: ARG001 (the space's)
    RESIDENT: tl.constexpr,  # noqa: ARG001 (the grid's)
    UNITS: tl.constexpr, LANES: tl.constexpr, SPLIT: tl.constexpr, TEAMS: tl.constexpr,
):  # fmt: skip
    """Compute UNITS units of LANES sequences a program; words are those of `gru`.

    `grad` gets the gradient of each step's result, `first` that of the state before all steps.
    """
    ELEMENT: tl.constexpr = weight_ptr.dtype.element_ty
    ALONE: tl.constexpr = UNITS >= WIDTH
    TERMS: tl.constexpr = UNITS if ALONE else WIDTH
    FULL: tl.constexpr = MULTIPLE % TERMS == 0
    PARTS: tl.constexpr = 1 if LANES == 1 else warps_apart(SPLIT, TERMS)
    GROUPS: tl.constexpr = 1 if LANES == 1 else warps_apart(TEAMS, UNITS)
    WORDS: tl.constexpr = words_of(LANES, ELEMENT)
    AREA: tl.constexpr = TERMS * WORDS
    hidden = vouched(hidden, MULTIPLE)
    unit, row, column, term, word = places(TERMS, UNITS, LANES, WORDS, PARTS, GROUPS)
    held = (row < hidden) & (column < hidden)
    weights = load_gates(weight_ptr + column * hidden + row, hidden * hidden, held)
    step = batch.to(tl.int64) * hidden
    at = 0 if LANES == 1 else tl.arange(0, LANES)[None, :]
    lane = at if PARTS * GROUPS == 1 else tl.arange(0, LANES)[None, None, :]
    mine = unit if LANES == 1 else unit * WORDS + tl.arange(0, WORDS)[None, :]
    place = at * hidden + unit
    tile = tl.program_id(1)
    while tile < tl.cdiv(batch, LANES):
        first = tile.to(tl.int64) * LANES
        inside = (unit < hidden) & (first + at < batch)
        known = (term < hidden) & (first + lane < batch)
        last = (seq - 1) * step + first * hidden
        dy = dy_ptr + last + place
        g = tl.load(dy, mask=inside & (seq > 0), other=0.0).to(tl.float32)
        factors = factors_ptr + 3 * last + (lane * 3 * hidden + term)
        own = keep_ptr + last + place
        if not ALONE:
            epoch = begin(words_ptr + tile)
            area = words_ptr + tl.cdiv(batch, 64) * 64 + tile.to(tl.int64) * (2 * AREA)
            # Terms past the last have no words: they wait for the last once more.
            others = area + (term if FULL else tl.minimum(term, hidden - 1)) * WORDS + word
            send(area + mine, g, epoch + 1, ELEMENT)
        f_r, f_z, f_n = load_gates(factors, hidden, known & (seq > 0))
        keep = tl.load(own, mask=inside & (seq > 0), other=0.0)
        of_y = tl.load(dy - step, mask=inside & (seq > 1), other=0.0)
        s = 0
        while s < seq:
            now, kept, y = (f_r, f_z, f_n), keep, of_y
            following = s + 1 < seq
            back = (s + 1) * step
            f_r, f_z, f_n = load_gates(factors - 3 * back, hidden, known & following)
            keep = tl.load(own - back, mask=inside & following, other=0.0)
            of_y = tl.load(dy - back - step, mask=inside & (s + 2 < seq), other=0.0)
            tl.store(grad_ptr + last - s * step + place, g, mask=inside)
            if ALONE:
                all_g = split(g, PARTS, GROUPS)
            else:
                words = others + s % 2 * AREA
                all_g = received(words, epoch + 1 + s, term < hidden, AREA, LANES, ELEMENT, FULL)
            through = through_gates(weights, now, all_g, LANES, PARTS, GROUPS)
            g = kept * g + (through + y.to(tl.float32))
            if not FULL:
                g = tl.where(unit < hidden, g, 0.0)
            if not ALONE:
                # All have read the words of the step before: each has sent what came of them.
                send(area + (s + 1) % 2 * AREA + mine, g, epoch + 2 + s, ELEMENT)
            s += 1
        tl.store(first_ptr + first * hidden + place, g, mask=inside)
        if not ALONE:
            leave(words_ptr + tile, epoch + 1 + seq)
        tile += tl.num_programs(1)


def state_gradients(
    factors: torch.Tensor, keep: torch.Tensor, dy: torch.Tensor, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the gradients of all states by the tuned kernel; tensors are without gaps.

    Args:
        factors: (seq, batch, 3 hidden), what a gradient of 1 gives the gates' parts of the states:
            reset, update, new.
        keep: (seq, batch, hidden) in fp32, the update gates.
        dy: (seq, batch, hidden), the gradient of the output, of the factors' dtype.
        weight: (3 hidden, hidden), of the same dtype.

    Returns:
        In fp32 the gradients of each step's result (seq, batch, hidden), and of the first state.
    """
    arguments = arguments_of(factors, keep, dy, weight)
    tuned[grid](**arguments)
    return arguments["grad_ptr"], arguments["first_ptr"]


def arguments_of(
    factors: torch.Tensor, keep: torch.Tensor, dy: torch.Tensor, weight: torch.Tensor
) -> dict[str, Any]:
    """Give the launch's arguments by name, with room for results and words."""
    tensors = {"factors_ptr": factors, "keep_ptr": keep, "dy_ptr": dy, "weight_ptr": weight}
    results = {"grad_ptr": torch.empty_like(dy, dtype=torch.float32)}
    results["first_ptr"] = dy.new_empty(dy.shape[1:], dtype=torch.float32)
    return {**tensors, **results, **exchange(dy)}


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random factors, of the extents that a layer's have."""
    seq, batch, hidden = (shape[name] for name in ("seq", "batch", "hidden"))
    factors = torch.rand(seq, batch, 3 * hidden, device=device) - 0.5
    keep = torch.rand(seq, batch, hidden, device=device)
    dy = torch.randn(seq, batch, hidden, device=device)
    weight = (2 * torch.rand(3 * hidden, hidden, device=device) - 1) * hidden**-0.5
    factors, dy, weight = (tensor.to(torch_dtype(dtype)) for tensor in (factors, dy, weight))
    arguments = arguments_of(factors, keep, dy, weight)
    named = {**shape, **{name: arguments[name] for name in ("SIZE", "RESIDENT")}}
    return Problem(kernel, arguments, grid, named, "gru_backward", frozenset(LAUNCHED_AT_ONCE))


def reference(arguments: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Compute the results in float64 from a launch's arguments."""
    factors, dy, weight = (
        arguments[f"{name}_ptr"].double() for name in ("factors", "dy", "weight")
    )
    carry, grads = torch.zeros_like(dy[0]), torch.empty_like(dy)
    for step in reversed(range(len(dy))):
        grads[step] = dy[step] + carry
        gates = factors[step] * grads[step].repeat(1, 3)
        carry = arguments["keep_ptr"][step] * grads[step] + gates @ weight
    return {"grad_ptr": grads.float(), "first_ptr": carry.float()}


OUTPUTS = ("grad_ptr", "first_ptr")

tuned = asm_autotune(space=space, key=["batch", "hidden"], reference=reference)(kernel)


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
