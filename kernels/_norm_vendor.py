"""The vendor's gradients of normalisations, in the place of the launch that walks the rows.

PyTorch's function gives all gradients at once. asmtune's kernels leave sums over rows in parts,
which a launch after adds up: a race does not time that one, a few percent of the whole. In a race
PyTorch's gradient of x is checked, and the parts are written for it, untimed. Else its results are
what the public function returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from asmtune.core.alternatives import unfinished


@dataclass(frozen=True)
class Gradients:
    """Gradients that the vendor has computed for a launch; a call writes what the kernel writes.

    Attributes:
        all: gradients of x, of the weight, and of the bias if there is one.
        given: the launch's arguments by name.
    """

    all: Sequence[torch.Tensor]
    given: Mapping[str, Any]

    def __call__(self) -> None:
        """Write the gradient of x, and what each program sums of the others."""
        given, (dx, *sums) = self.given, self.all
        given["dx_ptr"].copy_(dx)
        rows, programs, cols = given["rows"], given["programs"], given["cols"]
        parts = given["parts_ptr"].view(len(sums), programs, cols)
        parts.zero_()
        for first in range(0, rows, programs):
            part = slice(first, min(first + programs, rows))
            dy, x = (given[name][part].float() for name in ("dy_ptr", "x_ptr"))
            mean = given["mean_ptr"][part, None] if "mean_ptr" in given else 0.0
            hat = (x - mean) * given["rstd_ptr"][part, None]
            parts[0, : len(x)] += dy * hat
            if len(sums) > 1:
                parts[1, : len(x)] += dy


def launched(kernel: Any, arguments: Mapping[str, Any], by_vendor: Callable[..., Gradients]) -> Any:
    """Launch a tuned kernel on its grid; return all gradients if the vendor was called for it."""
    with unfinished(by_vendor) as called:
        kernel(**arguments)
    return called[0].all if called else None


def of_layernorm(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compute the gradients of x, weight and bias; PyTorch wants a bias, and reads none."""
    backward, all_three = torch.ops.aten.native_layer_norm_backward, [True] * 3
    columns = (mean[:, None], rstd[:, None])
    made = backward(dy, x, weight.shape, *columns, weight, weight, all_three)
    return tuple(made)  # type: ignore[return-value]


def of_rmsnorm(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, rstd: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the gradients of x and weight; PyTorch has the function from 2.9 on."""
    backward = torch.ops.aten._fused_rms_norm_backward
    return tuple(backward(dy, x, weight.shape, rstd[:, None], weight, [True] * 2))  # type: ignore[return-value]
