"""Host side of the GRU kernels: checks, random arguments, the layer in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from asmtune.core.dtypes import torch_dtype
from asmtune.kernels._common import FLOATS, check_shape, check_tensors, of_own_dtype


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
    """Refuse arguments that are not those of a GRU layer.

    Raises:
        ValueError: a dtype, device or shape does not fit.
    """
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
