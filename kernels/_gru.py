"""Device functions of the GRU kernels: the cell, and products whose parts warps share out."""

from __future__ import annotations

import triton
import triton.language as tl


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
