"""The gradients of a GRU's states, one launch for all of its time steps, from the last back.

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

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.dtypes import torch_dtype
from asmtune.core.problem import Problem
from asmtune.kernels._common import vouched
from asmtune.kernels._gru import DEFAULT as DEFAULT
from asmtune.kernels._gru import (
    LAUNCHED_AT_ONCE,
    add_parts,
    exchange,
    grid,
    load_gates,
    places,
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

# A persistent kernel, whose tiles would be held at the default's.
tuned = asm_autotune(space=space, key=["batch", "hidden"], reference=reference)(kernel)
