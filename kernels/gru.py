"""A GRU layer, one launch for all of its time steps.

The inputs' part of the gates is one product ahead, of all steps. The launch holds the weights
of the state in registers: each program has UNITS rows of each gate, for LANES sequences, and
hands its states to the others at each step, as `_gru_words.py` says. Programs that wait for
each other must run at once, so that there are no more of them than the GPU has multiprocessors,
and the launch is cooperative: a driver that cannot place them all at once refuses it. What is
left of the batch comes after, in the same launch.

With one lane, products are multiplications and sums in fp32. With more they are those of tensor
cores, whose warps share out the terms of the sums (SPLIT) and the units (TEAMS): a chain of
products is as long as its terms, and registers hold the weights of 16 units by some 200 terms
a warp.

What the inputs give a step is loaded during the step before it: the compiler brings it to the
layout of the states, for which it waits, and in the same step that was before the exchange.

The loops are `while` loops because of Triton 3.6: it moves loads of a product's operands out of
shared memory into a `for`, where weights would be loaded again at every step.

Shapes: x is (seq, batch, input), h0 (batch, hidden), weight_ih (3 hidden, input), weight_hh
(3 hidden, hidden), the biases (3 hidden,), gates in PyTorch's order: reset, update, new.
Dtypes: fp16, bf16, fp32, the same for all; states are kept in fp32. Products of states round
them to the dtype first, fp32 to tf32 where there are several lanes, as cuDNN does; the product
of the inputs is PyTorch's, and follows `torch.backends.cuda.matmul.allow_tf32`.
Layout: any strides; the output is contiguous.
Backward: `_gru_backward.py`, one launch for all steps as well.
More than 1024 hidden units, or 512 in fp32, do not fit the registers: the 16 units of a product
by 1024 terms are 192 KiB of the 256 KiB that a multiprocessor has, in fp32, and with what tensor
cores take beside them they spill. `torch.nn.GRU` runs these, and what a GPU of few multiprocessors
cannot run at once: 16 units a multiprocessor.
Source: Cho et al. 2014 (arXiv:1406.1078) as in torch.nn.GRU; held weights: Diamos et al. 2016,
Persistent RNNs (ICML).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.kernels._common import doubled, problems, vouched
from asmtune.kernels._gru import (
    DEFAULT,
    LAUNCHED_AT_ONCE,
    arguments_of,
    baseline,
    cell,
    check,
    gates_of,
    grid,
    inputs,
    load_gates,
    places,
    product,
    recurrence,
    space,
    split,
    warps_apart,
)
from asmtune.kernels._gru_backward import differentiated, is_differentiated
from asmtune.kernels._gru_words import begin, leave, received, send, words_of
from asmtune.runtime.decorator import asm_autotune

__all__ = [
    "DEFAULT",
    "baseline",
    "gru",
    "inputs",
    "kernel",
    "problem",
    "reference",
    "space",
]


@triton.jit(do_not_specialize=["seq", "batch"])
def kernel(
    gates_ptr,
    h0_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    words_ptr,
    seq,
    batch,
    hidden,
    MULTIPLE: tl.constexpr,
    WIDTH: tl.constexpr,
    SIZE: tl.constexpr,  # noqa: ARG001 (the space's)
    RESIDENT: tl.constexpr,  # noqa: ARG001 (the grid's)
    UNITS: tl.constexpr,
    LANES: tl.constexpr,
    SPLIT: tl.constexpr,
    TEAMS: tl.constexpr,
):
    """Compute UNITS units of LANES sequences a program; words begin with an epoch for each tile."""
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
    w_r, w_z, w_n = load_gates(weight_ptr + row * hidden + column, hidden * hidden, held)
    bias = load_gates(bias_ptr + unit, hidden, unit < hidden)
    step = batch.to(tl.int64) * hidden
    at = 0 if LANES == 1 else tl.arange(0, LANES)[None, :]
    mine = unit if LANES == 1 else unit * WORDS + tl.arange(0, WORDS)[None, :]
    place = at * hidden + unit
    tile = tl.program_id(1)
    while tile < tl.cdiv(batch, LANES):
        first = tile.to(tl.int64) * LANES
        inside = (unit < hidden) & (first + at < batch)
        out = out_ptr + first * hidden
        state = tl.load(h0_ptr + first * hidden + place, mask=inside, other=0.0).to(tl.float32)
        if not ALONE:
            epoch = begin(words_ptr + tile)
            area = words_ptr + tl.cdiv(batch, 64) * 64 + tile.to(tl.int64) * (2 * AREA)
            # Terms past the last have no words: they wait for the last once more.
            others = area + (term if FULL else tl.minimum(term, hidden - 1)) * WORDS + word
            send(area + mine, state, epoch + 1, ELEMENT)
        x_ptr = gates_ptr + 3 * first * hidden + (at * 3 * hidden + unit)
        x_r, x_z, x_n = load_gates(x_ptr, hidden, inside & (seq > 0))
        t = 0
        while t < seq:
            x = (x_r, x_z, x_n)
            following = inside & (t + 1 < seq)
            x_r, x_z, x_n = load_gates(x_ptr + 3 * (t + 1) * step, hidden, following)
            if ALONE:
                h = split(state, PARTS, GROUPS)
            else:
                now = others + t % 2 * AREA
                h = received(now, epoch + 1 + t, term < hidden, AREA, LANES, ELEMENT, FULL)
            state = cell(x, product(w_r, w_z, w_n, h, LANES, PARTS, GROUPS), bias, state)
            if not FULL:
                state = tl.where(unit < hidden, state, 0.0)
            if not ALONE:
                # All have read the words of the step before: each has sent what came of them.
                send(area + (t + 1) % 2 * AREA + mine, state, epoch + 2 + t, ELEMENT)
            tl.store(out + t * step + place, state.to(ELEMENT), mask=inside)
            t += 1
        if not ALONE:
            leave(words_ptr + tile, epoch + 1 + seq)
        tile += tl.num_programs(1)


OUTPUTS = ("out_ptr",)

DTYPES = ("fp16", "bf16", "fp32")

SHAPES = (
    {"seq": 512, "batch": 1, "input": 256, "hidden": 256},
    {"seq": 512, "batch": 16, "input": 256, "hidden": 256},
    {"seq": 256, "batch": 64, "input": 512, "hidden": 512},
    {"seq": 1024, "batch": 1, "input": 128, "hidden": 128},
)


def _problem_arguments(h0: Any, weight_hh: Any, bias_hh: Any, x: Any, **_: Any) -> dict[str, Any]:
    gates = torch.randn(len(x), len(h0), len(bias_hh), device=h0.device).to(h0.dtype)
    return arguments_of(gates, h0, weight_hh, bias_hh)


def reference(arguments: Mapping[str, Any]) -> torch.Tensor:
    """Compute all states in float64 from a problem's arguments."""
    return recurrence(*doubled(arguments, "gates_ptr", "h0_ptr", "weight_ptr", "bias_ptr"))


def gru(
    x: torch.Tensor,
    h0: torch.Tensor,
    weight_ih: torch.Tensor,
    weight_hh: torch.Tensor,
    bias_ih: torch.Tensor,
    bias_hh: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute a GRU layer by the tuned kernel, as `torch.nn.GRU` with its weights.

    Args:
        x: (seq, batch, input), of a dtype of DTYPES, on a GPU, any strides.
        h0: (batch, hidden), of the same dtype, as are the others.
        weight_ih: (3 hidden, input).
        weight_hh: (3 hidden, hidden).
        bias_ih: (3 hidden,).
        bias_hh: (3 hidden,).

    Returns:
        The states (seq, batch, hidden), and the last of them, which shares their memory: clone it
        before you write to it.

    Raises:
        ValueError: shapes, dtypes or devices differ, or there are too many hidden units.
    """
    given = {"x": x, "h0": h0, "weight_ih": weight_ih, "weight_hh": weight_hh}
    given |= {"bias_ih": bias_ih, "bias_hh": bias_hh}
    check("gru", given)
    if is_differentiated(*given.values()):
        return differentiated(gru, *given.values())
    if not len(x) or not h0.numel():
        return h0.new_empty((len(x), *h0.shape)), h0.clone()
    gates = gates_of(x, weight_ih, bias_ih)
    arguments = arguments_of(*(t.contiguous() for t in (gates, h0, weight_hh, bias_hh)))
    _tuned[grid](**arguments)
    output = arguments["out_ptr"]
    return output, output[-1]


def _expected(arguments: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Give the outputs to compare after a tuned launch; its words differ from config to config."""
    return {"out_ptr": reference(arguments).to(arguments["out_ptr"].dtype)}


_tuned = asm_autotune(space=space, key=["batch", "hidden"], reference=_expected)(kernel)
problem = problems(
    kernel, "gru", inputs, _problem_arguments, grid, ("SIZE", "RESIDENT"), LAUNCHED_AT_ONCE
)
