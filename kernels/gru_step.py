"""A GRU layer with one launch a time step: what `gru` does in one launch, the plain way.

Each launch loads all weights of the state again, out of the L2, and each waits for the one
before it. It shows what the persistent kernel saves, and runs the hidden sizes that do not fit
that one's registers.

Shapes: x is (seq, batch, input), h0 (batch, hidden), weight_ih (3 hidden, input), weight_hh
(3 hidden, hidden), the biases (3 hidden,), gates in PyTorch's order: reset, update, new.
Dtypes: fp16, bf16, fp32, the same for all; computed in fp32, states are rounded to the dtype
after each step. Products of several lanes are those of tensor cores, fp32 rounded to tf32; the
product of the inputs is PyTorch's, and follows `torch.backends.cuda.matmul.allow_tf32`.
Layout: any strides; the output is contiguous.
Errors: ValueError where shapes, dtypes or devices differ.
Backward: `_gru_backward.py`, as of `gru`.
Source: Cho et al. 2014 (arXiv:1406.1078) as in torch.nn.GRU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.core.space.space import Space
from asmtune.kernels._common import doubled, multiple, problems, vouched
from asmtune.kernels._gru import (
    add_three,
    baseline,
    cell,
    check,
    gates_of,
    inputs,
    load_gates,
    recurrence,
)
from asmtune.kernels._gru_backward import differentiated, is_differentiated
from asmtune.runtime.decorator import asm_autotune

__all__ = ["baseline", "gru_step", "inputs", "kernel", "problem", "reference", "space"]


@triton.jit(do_not_specialize=["batch"])
def kernel(
    gates_ptr,
    before_ptr,
    weight_ptr,
    bias_ptr,
    after_ptr,
    batch,
    hidden,
    MULTIPLE: tl.constexpr,
    UNITS: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute UNITS units of LANES sequences a program, BLOCK terms of their sums at once."""
    hidden = vouched(hidden, MULTIPLE)
    unit = (tl.program_id(0) * UNITS + tl.arange(0, UNITS))[:, None]
    first = tl.program_id(1).to(tl.int64) * LANES
    lane = tl.arange(0, LANES)[None, :]
    before = before_ptr + first * hidden
    # With one lane each thread sums its own terms, and the threads' sums are added at the end.
    WIDE: tl.constexpr = BLOCK if LANES == 1 else LANES
    r = tl.zeros((UNITS, WIDE), tl.float32)
    z = tl.zeros((UNITS, WIDE), tl.float32)
    n = tl.zeros((UNITS, WIDE), tl.float32)
    for start in range(0, hidden, BLOCK):
        column = start + tl.arange(0, BLOCK)[None, :]
        held = (unit < hidden) & (column < hidden)
        weight = weight_ptr + unit * hidden + column
        w_r = tl.load(weight, mask=held, other=0.0)
        w_z = tl.load(weight + hidden * hidden, mask=held, other=0.0)
        w_n = tl.load(weight + 2 * hidden * hidden, mask=held, other=0.0)
        if LANES == 1:
            h = tl.load(before + column, mask=column < hidden, other=0.0).to(tl.float32)
            r += w_r.to(tl.float32) * h
            z += w_z.to(tl.float32) * h
            n += w_n.to(tl.float32) * h
        else:
            term = start + tl.arange(0, BLOCK)[:, None]
            there = (term < hidden) & (first + lane < batch)
            h = tl.load(before + lane * hidden + term, mask=there, other=0.0)
            r, z, n = tl.dot(w_r, h, r), tl.dot(w_z, h, z), tl.dot(w_n, h, n)
    if LANES == 1:
        r, z, n = tl.reduce((r, z, n), 1, add_three, keep_dims=True)
    inside = (unit < hidden) & (first + lane < batch)
    place = lane * hidden + unit
    gate = gates_ptr + 3 * first * hidden + (lane * 3 * hidden + unit)
    state = tl.load(before + place, mask=inside, other=0.0).to(tl.float32)
    bias = load_gates(bias_ptr + unit, hidden, unit < hidden)
    state = cell(load_gates(gate, hidden, inside), (r, z, n), bias, state)
    after = after_ptr + first * hidden + place
    tl.store(after, state.to(after_ptr.dtype.element_ty), mask=inside)


OUTPUTS = ("after_ptr",)

DTYPES = ("fp16", "bf16", "fp32")

SHAPES = (
    {"seq": 512, "batch": 1, "input": 256, "hidden": 256},
    {"seq": 512, "batch": 16, "input": 256, "hidden": 256},
    {"seq": 256, "batch": 64, "input": 512, "hidden": 512},
    {"seq": 1024, "batch": 1, "input": 128, "hidden": 128},
    {"seq": 128, "batch": 32, "input": 1024, "hidden": 1024},
)

DEFAULT = Config({"UNITS": 16, "LANES": 8, "BLOCK": 128}, num_warps=4, num_stages=3)
"""A small tile: a step is over in microseconds, and needs many programs."""


def space() -> Space:
    """Build the space: units, lanes and terms of a program, warps and stages."""
    axes = {
        "UNITS": (2, 4, 8, 16, 32, 64),
        "LANES": (1, 8, 16, 32, 64),
        "BLOCK": (32, 64, 128, 256),
        "num_warps": (2, 4, 8),
        "num_stages": (2, 3, 4),
    }
    return (
        Space(axes, default=DEFAULT)
        .where("lanes are under twice the batch, or 8", _lanes_are_of_use)
        .where("products have 16 units or more", lambda UNITS, LANES: LANES == 1 or UNITS >= 16)
        .where(
            "a thread holds 2 to 64 of a tile",
            lambda UNITS, BLOCK, num_warps: 2 <= UNITS * BLOCK // (32 * num_warps) <= 64,
        )
    )


def _lanes_are_of_use(LANES: int, batch: int) -> bool:
    return batch <= 4 if LANES == 1 else LANES == 8 or 2 * batch > LANES


def _grid(values: Mapping[str, Any]) -> tuple[int, int]:
    programs = triton.cdiv(values["hidden"], values["UNITS"])
    return programs, triton.cdiv(values["batch"], values["LANES"])


def _problem_arguments(h0: Any, weight_hh: Any, bias_hh: Any, **_: Any) -> dict[str, Any]:
    gates = torch.randn(len(h0), len(bias_hh), device=h0.device).to(h0.dtype)
    return _arguments(gates, h0, weight_hh, bias_hh, torch.empty_like(h0))


def reference(arguments: Mapping[str, Any]) -> torch.Tensor:
    """Compute the states after the step in float64 from a problem's arguments."""
    names = ("gates_ptr", "before_ptr", "weight_ptr", "bias_ptr")
    gates, *rest = doubled(arguments, *names)
    return recurrence(gates[None], *rest)[0]


def gru_step(
    x: torch.Tensor,
    h0: torch.Tensor,
    weight_ih: torch.Tensor,
    weight_hh: torch.Tensor,
    bias_ih: torch.Tensor,
    bias_hh: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute a GRU layer by the tuned kernel, with a launch for each step.

    Arguments, results and errors are those of `gru`.
    """
    given = {"x": x, "h0": h0, "weight_ih": weight_ih, "weight_hh": weight_hh}
    given |= {"bias_ih": bias_ih, "bias_hh": bias_hh}
    check("gru_step", given)
    if is_differentiated(*given.values()):
        return differentiated(gru_step, *given.values())
    output = h0.new_empty((len(x), *h0.shape))
    if not output.numel():
        return output, h0.clone()
    gates = gates_of(x, weight_ih, bias_ih)
    state, weight, bias = h0.contiguous(), weight_hh.contiguous(), bias_hh.contiguous()
    for of_x, after in zip(gates.unbind(), output.unbind(), strict=True):
        _tuned[_grid](**_arguments(of_x, state, weight, bias, after))
        state = after
    return output, state


def _arguments(
    gates: torch.Tensor,
    before: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    after: torch.Tensor,
) -> dict[str, Any]:
    batch, hidden = before.shape
    tensors = {"gates_ptr": gates, "before_ptr": before, "weight_ptr": weight, "bias_ptr": bias}
    sizes = {"batch": batch, "hidden": hidden, "MULTIPLE": multiple(hidden)}
    return {**tensors, "after_ptr": after, **sizes}


_tuned = asm_autotune(space=space, key=["batch", "hidden"])(kernel)
problem = problems(kernel, "gru_step", inputs, _problem_arguments, _grid)
