"""The GRU: its cell and products whose parts warps share out, and the host's side.

That is checks, the layer in PyTorch, and the persistent kernel's configs and arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.core.dtypes import torch_dtype
from asmtune.core.space.space import Space
from asmtune.kernels._common import (
    FLOATS,
    check_shape,
    check_tensors,
    multiple,
    of_own_dtype,
    processors,
)


@triton.jit
def sigmoid(x):
    """Compute the logistic function in fp32."""
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def add_three(a_r, a_z, a_n, b_r, b_z, b_n):
    """Add three pairs of tensors: reduced together, they share their way through shared memory."""
    return a_r + b_r, a_z + b_z, a_n + b_n


@triton.jit
def load_gates(ptr, hidden, inside):
    """Load the reset, update and new gates' parts, which lie `hidden` apart."""
    r = tl.load(ptr, mask=inside, other=0.0)
    z = tl.load(ptr + hidden, mask=inside, other=0.0)
    n = tl.load(ptr + 2 * hidden, mask=inside, other=0.0)
    return r, z, n


@triton.jit
def cell(x, h, bias, state):
    """Return the state after a step, in fp32 as h is. x is the input's part, h the state's."""
    r = sigmoid(x[0] + (h[0] + bias[0]))
    z = sigmoid(x[1] + (h[1] + bias[1]))
    n = 2.0 * sigmoid(2.0 * (x[2] + r * (h[2] + bias[2]))) - 1.0  # tanh
    return n + z * (state - n)


@triton.jit
def summed(w_r, w_z, w_n, h):
    """Compute each gate's part of the state by multiplications and sums, of one sequence."""
    h = h[None, :]
    terms = (w_r.to(tl.float32) * h, w_z.to(tl.float32) * h, w_n.to(tl.float32) * h)
    return tl.reduce(terms, 1, add_three)


@triton.jit
def add_parts(parts, SPLIT: tl.constexpr, TEAMS: tl.constexpr):
    """Add what the warps of each team found: (teams split, rows, lanes) to (units, lanes).

    A reduction stores each warp's part with the parts next to each other, where as many
    conflict in shared memory as there are, and leaves the sums with every warp of the team,
    each of which would send them. Halves are added in registers after one conversion.
    """
    tl.static_assert(SPLIT <= 8, "SPLIT is 8 at the most")
    ROWS: tl.constexpr = parts.shape[1]
    LANES: tl.constexpr = parts.shape[2]
    if SPLIT > 1:
        parts = tl.reshape(parts, (TEAMS, SPLIT, ROWS, LANES)).permute(0, 2, 3, 1)
        if SPLIT >= 8:
            low, high = tl.split(tl.reshape(parts, (TEAMS * ROWS, LANES, 4, 2)))
            parts = low + high
        if SPLIT >= 4:
            low, high = tl.split(tl.reshape(parts, (TEAMS * ROWS, LANES, 2, 2)))
            parts = low + high
        low, high = tl.split(tl.reshape(parts, (TEAMS * ROWS, LANES, 2)))
        return low + high
    else:  # noqa: RET505 (Triton compiles what follows a return)
        return tl.reshape(parts, (TEAMS * ROWS, LANES))


@triton.jit
def products(w_r, w_z, w_n, h, SPLIT: tl.constexpr, TEAMS: tl.constexpr):
    """Compute each gate's part of the state on tensor cores, of weights (units, terms) or parts."""
    h = h.to(w_r.dtype)
    if TEAMS > 1:
        PART: tl.constexpr = h.shape[1]
        LANES: tl.constexpr = h.shape[2]
        shared = tl.broadcast_to(h[None, :, :, :], (TEAMS, SPLIT, PART, LANES))
        h = tl.reshape(shared, (TEAMS * SPLIT, PART, LANES))
    r, z, n = tl.dot(w_r, h), tl.dot(w_z, h), tl.dot(w_n, h)
    if SPLIT * TEAMS == 1:
        return r, z, n
    else:  # noqa: RET505 (Triton compiles what follows a return)
        r, z, n = (
            add_parts(r, SPLIT, TEAMS),
            add_parts(z, SPLIT, TEAMS),
            add_parts(n, SPLIT, TEAMS),
        )
        return r, z, n


@triton.jit
def split(state, SPLIT: tl.constexpr, TEAMS: tl.constexpr):
    """Reshape a program's states to what its own product takes."""
    if SPLIT * TEAMS == 1:
        return state
    else:  # noqa: RET505 (Triton compiles what follows a return)
        return tl.reshape(state, (SPLIT, state.shape[0] // SPLIT, state.shape[1]))


@triton.jit
def places(
    TERMS: tl.constexpr,
    UNITS: tl.constexpr,
    LANES: tl.constexpr,
    WORDS: tl.constexpr,
    SPLIT: tl.constexpr,
    TEAMS: tl.constexpr,
):
    """Return units of states, weights' rows and columns, terms, and words of a term to receive."""
    first = tl.program_id(0) * UNITS
    unit = first + tl.arange(0, UNITS)
    term = tl.arange(0, TERMS)
    if LANES == 1:
        return unit, unit[:, None], term[None, :], term, tl.zeros((1,), tl.int32)
    elif SPLIT * TEAMS == 1:  # noqa: RET505 (Triton compiles what follows a return)
        word = tl.arange(0, WORDS)[None, :]
        return unit[:, None], unit[:, None], term[None, :], term[:, None], word
    else:
        word = tl.arange(0, WORDS)[None, None, :]
        ROWS: tl.constexpr = UNITS // TEAMS
        PART: tl.constexpr = TERMS // SPLIT
        part = tl.arange(0, SPLIT * TEAMS)[:, None, None]
        row = first + part // SPLIT * ROWS + tl.arange(0, ROWS)[None, :, None]
        column = part % SPLIT * PART + tl.arange(0, PART)[None, None, :]
        of_part = tl.arange(0, PART)[None, :, None]
        term = tl.arange(0, SPLIT)[:, None, None] * PART + of_part
        return unit[:, None], row, column, term, word


@triton.constexpr_function
def warps_apart(wanted, extent):
    """Limit the parts of an extent so that each has the 16 that a product needs at least."""
    return max(1, min(wanted, extent // 16))


@triton.jit
def product(w_r, w_z, w_n, h, LANES: tl.constexpr, SPLIT: tl.constexpr, TEAMS: tl.constexpr):
    """Compute each gate's part of the states of one sequence or several."""
    if LANES == 1:
        return summed(w_r, w_z, w_n, h)
    else:  # noqa: RET505 (Triton compiles what follows a return)
        return products(w_r, w_z, w_n, h, SPLIT, TEAMS)


DEFAULT = Config({"UNITS": 16, "LANES": 8, "SPLIT": 8, "TEAMS": 1}, num_warps=8, num_stages=1)
"""64 programs for 1024 hidden units, which an H200 runs at once.

At the most, of rows of 2 KiB, weights fill 96 of a thread's registers. Of 256 units two or four
warps a product are faster, and a lane of its own for a single sequence twice as fast.
"""

LAUNCHED_AT_ONCE = ("launch_cooperative_grid",)
"""Options of a launch whose programs wait for each other."""

_LANES_ROUND = 64
_MOST_ROW_BYTES = 2048


def most_units(states: torch.Tensor) -> int:
    """Give the most hidden units of a layer in the default config.

    Registers hold the weights, and the device runs all programs of a sequence at once.
    """
    by_registers = _MOST_ROW_BYTES // states.element_size()
    if states.device.type == "cpu":
        return by_registers
    return min(by_registers, int(DEFAULT.kwargs["UNITS"]) * processors(states.device))


def space() -> Space:
    """Build the space: units and lanes of a program, how warps share a product; 3 to 36 a shape."""
    axes = {
        "UNITS": (4, 8, 16, 32, 64, 128),
        "LANES": (1, 8, 16, 32),
        "SPLIT": (1, 2, 4, 8),
        "TEAMS": (1, 2, 4, 8),
        "num_warps": (1, 2, 4, 8),
        "num_stages": (1,),
    }
    return (
        Space(axes, default=DEFAULT)
        .where(
            "programs that wait for each other run at once",
            lambda UNITS, hidden, RESIDENT: triton.cdiv(hidden, UNITS) <= RESIDENT,
        )
        .where("lanes are under twice the batch, or 8", _lanes_are_of_use)
        .where("warps share out a product of 16 units and terms or more", _shares)
        .where("a thread's weights fill 6 to 96 registers, of one lane up to 96 terms", _holds)
    )


def _lanes_are_of_use(LANES: int, batch: int, hidden: int) -> bool:
    # Several sequences are worth a product of tensor cores, which takes 8 at once. Of 128 units
    # a few programs, or one, hold all, so that tiles of 8 have enough programs.
    if LANES == 1:
        return batch <= 4
    return LANES == 8 or (2 * batch > LANES and hidden > 128)


def _shares(UNITS: int, LANES: int, SPLIT: int, TEAMS: int, num_warps: int, hidden: int) -> bool:
    if LANES == 1:
        return SPLIT * TEAMS == 1 and num_warps <= UNITS
    if UNITS < 16 * TEAMS or max(_width(hidden), UNITS) < 16 * SPLIT:
        return False
    # Warps of one product each, or rows of one product.
    warps = SPLIT * TEAMS
    return warps == num_warps or (warps == 1 and 16 * num_warps <= UNITS)


def _holds(UNITS: int, LANES: int, num_warps: int, hidden: int, SIZE: int) -> bool:
    if 2 * hidden <= UNITS and UNITS > 16:
        return False
    terms = 3 * UNITS * max(_width(hidden), UNITS) // (32 * num_warps)
    return terms <= 96 if LANES == 1 else 24 <= terms * SIZE <= 384


def _width(hidden: int) -> int:
    return int(triton.next_power_of_2(hidden))


def grid(values: Mapping[str, Any]) -> tuple[int, int]:
    """Give the grid: programs of one tile, and tiles at once, no more than run together."""
    hidden, units = values["hidden"], values["UNITS"]
    most = values["RESIDENT"]
    programs = triton.cdiv(hidden, units)
    if programs > most:
        raise ValueError(
            f"gru: {hidden} hidden units by {units} are {programs} programs that wait for each "
            f"other, and this device runs {most} at once: take a larger UNITS"
        )
    return programs, max(1, min(triton.cdiv(values["batch"], values["LANES"]), most // programs))


def arguments_of(
    gates: torch.Tensor, h0: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
) -> dict[str, Any]:
    """Give arguments by name, with room for states and words."""
    tensors = {"gates_ptr": gates, "h0_ptr": h0, "weight_ptr": weight, "bias_ptr": bias}
    out = h0.new_empty((len(gates), *h0.shape))
    return {**tensors, "out_ptr": out, **exchange(out)}


def exchange(states: torch.Tensor) -> dict[str, Any]:
    """Return what programs need to pass on (seq, batch, hidden) states: words, sizes, contracts.

    No word bears an epoch yet.
    """
    seq, batch, hidden = states.shape
    device = states.device
    lanes = triton.cdiv(batch, _LANES_ROUND) * _LANES_ROUND
    words = torch.zeros(lanes * (1 + 2 * _width(hidden)), dtype=torch.int64, device=device)
    sizes = {"seq": seq, "batch": batch, "hidden": hidden}
    # Triton's interpreter runs programs one after the other.
    most = 1 if device.type == "cpu" else processors(device)
    contract = {"MULTIPLE": multiple(hidden), "WIDTH": _width(hidden)}
    contract |= {"SIZE": states.element_size(), "RESIDENT": most}
    return {"words_ptr": words, **sizes, **contract, "launch_cooperative_grid": True}


@of_own_dtype
def gates_of(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Compute the inputs' part of the gates, or the states'."""
    return torch.nn.functional.linear(x, weight, bias)


def recurrence(
    gates: torch.Tensor, h0: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    """Compute all states in plain PyTorch, from the inputs' parts of the gates."""
    states, state = [], h0
    for x in gates.unbind():
        of_x, of_h = x.chunk(3, -1), (state @ weight.t() + bias).chunk(3, -1)
        r, z = torch.sigmoid(of_x[0] + of_h[0]), torch.sigmoid(of_x[1] + of_h[1])
        n = torch.tanh(of_x[2] + r * of_h[2])
        state = n + z * (state - n)
        states.append(state)
    return torch.stack(states) if states else h0.new_empty((0, *h0.shape))


def baseline(
    x: torch.Tensor,
    h0: torch.Tensor,
    weight_ih: torch.Tensor,
    weight_hh: torch.Tensor,
    bias_ih: torch.Tensor,
    bias_hh: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute a GRU layer in plain PyTorch: its output, and its last state."""
    gates = torch.nn.functional.linear(x, weight_ih, bias_ih)
    output = recurrence(gates, h0, weight_hh, bias_hh)
    return output, (output[-1] if len(output) else h0)


def inputs(shape: Mapping[str, int], dtype: str, device: str) -> dict[str, Any]:
    """Make random arguments by name; weights and biases as PyTorch initialises them."""
    seq, batch, wide, hidden = (shape[name] for name in ("seq", "batch", "input", "hidden"))

    def normal(*extents: int) -> torch.Tensor:
        return torch.randn(*extents, device=device).to(torch_dtype(dtype))

    def uniform(*extents: int) -> torch.Tensor:
        bound = hidden**-0.5
        values = torch.rand(*extents, device=device) * (2 * bound) - bound
        return values.to(torch_dtype(dtype))

    return {
        "x": normal(seq, batch, wide),
        "h0": normal(batch, hidden),
        "weight_ih": uniform(3 * hidden, wide),
        "weight_hh": uniform(3 * hidden, hidden),
        "bias_ih": uniform(3 * hidden),
        "bias_hh": uniform(3 * hidden),
    }


def check(what: str, given: Mapping[str, torch.Tensor]) -> None:
    """Refuse arguments that are not those of a GRU layer."""
    check_tensors(what, given, FLOATS)
    x, h0 = given["x"], given["h0"]
    if x.ndim != 3:
        raise ValueError(f"{what}: x is {tuple(x.shape)}; it must be (seq, batch, input)")
    if h0.ndim != 2:
        raise ValueError(f"{what}: h0 is {tuple(h0.shape)}; it must be (batch, hidden)")
    hidden = h0.shape[1]
    check_shape(what, "h0", h0, (x.shape[1], hidden))
    check_shape(what, "weight_ih", given["weight_ih"], (3 * hidden, x.shape[2]))
    check_shape(what, "weight_hh", given["weight_hh"], (3 * hidden, hidden))
    for name in ("bias_ih", "bias_hh"):
        check_shape(what, name, given[name], (3 * hidden,))
    if hidden > most_units(h0):
        raise ValueError(
            f"{what}: h0 is {tuple(h0.shape)} in {h0.dtype}; on {h0.device} it must have "
            f"{most_units(h0)} hidden units at most: take torch.nn.GRU for more"
        )
