"""Host side of the normalisations' gradients, and the vendor's in the place of a launch.

PyTorch's function gives all gradients at once. asmtune's kernels leave sums over rows in parts,
which a launch after adds up: a race does not time that one, a few percent of the whole. In a race
PyTorch's gradient of x is checked, and the parts are written for it, untimed. Else its results are
what the public function returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling

from asmtune.core.alternatives import unfinished
from asmtune.kernels._common import (
    as_rows,
    by_name,
    check_shape,
    check_tensors,
    doubled,
    tuners,
    walkers,
)
from asmtune.kernels._rows import ROW_KEY, sum_parts, whole_row_sizes


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
        self.given["dx_ptr"].copy_(self.all[0])
        add_rows(self.given, self.given["parts_ptr"].zero_())


def add_rows(given: Mapping[str, Any], parts: torch.Tensor) -> None:
    """Add to each program's parts what it sums of its rows, in the parts' dtype.

    Args:
        given: a launch's arguments by name.
        parts: (programs, cols), or (2, programs, cols) where there is a bias.
    """
    rows, programs, cols = given["rows"], given["programs"], given["cols"]
    parts = parts.view(-1, programs, cols)
    for first in range(0, rows, programs):
        part = slice(first, min(first + programs, rows))
        dy, x, rstd = (given[f"{n}_ptr"][part].to(parts.dtype) for n in ("dy", "x", "rstd"))
        mean = given["mean_ptr"][part, None] if "mean_ptr" in given else 0.0
        parts[0, : len(x)] += dy * (x - mean) * rstd[:, None]
        if len(parts) > 1:
            parts[1, : len(x)] += dy


def decorated(kernel: Any, function: Callable[..., Any], **options: Any) -> tuple[Any, ...]:
    """Decorate a kernel without and with PyTorch's function of its first arguments.

    Its programs walk the rows, so that its tiles would be held at the default's.
    """

    def launch(given: dict[str, Any]) -> Gradients:
        names = ("dy", "x", "weight", "mean", "rstd")
        return Gradients(
            function(*(given[f"{name}_ptr"] for name in names if f"{name}_ptr" in given)), given
        )

    vendor = {"torch": by_name(kernel, launch)}
    return tuners(kernel, key=ROW_KEY, search_held_tiles=True, vendor=vendor, **options)


def reference(baseline: Callable[..., Any], arguments: Mapping[str, Any]) -> tuple[Any, Any]:
    """Compute the gradient of x and the parts in float64 from a problem's arguments."""
    names = ("dy_ptr", "x_ptr", "weight_ptr", "mean_ptr", "rstd_ptr")
    given = doubled(arguments, *(name for name in names if name in arguments))
    parts = torch.zeros_like(arguments["parts_ptr"], dtype=torch.float64)
    add_rows(arguments, parts)
    return baseline(*given)[0], parts


def grid(values: Mapping[str, Any]) -> tuple[int]:
    """Give the grid: programs that walk the rows."""
    return (values["programs"],)


def arguments(
    sums: tuple[int, ...],
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    **saved: torch.Tensor,
) -> dict[str, Any]:
    """Give the launch's arguments by name, with room for the results.

    `sums` is () for those of the weight, (2,) for the bias as well.
    """
    dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    programs = walkers(x)
    parts = torch.empty((*sums, programs, x.shape[1]), dtype=torch.float32, device=x.device)
    given = {"dy": dy, "x": x, "weight": weight, **saved, "dx": dx, "parts": parts}
    tensors = {f"{name}_ptr": tensor for name, tensor in given.items()}
    return {**tensors, "programs": programs, **whole_row_sizes(dy=dy, x=x, dx=dx)}


def differentiate(
    what: str,
    tuned: Any,
    made_by: Callable[..., dict[str, Any]],
    given: Mapping[str, torch.Tensor],
    saved: Mapping[str, torch.Tensor],
) -> tuple[torch.Tensor, ...]:
    """Compute the gradients of x, of the weight, and of the bias if there is one.

    Args:
        what: the public function's name.
        tuned: the kernel beside the alternatives that are wanted; none for PyTorch's compiler.
        made_by: gives a launch's arguments by name.
        given: dy and x of (..., cols), and weight of (cols,), of one dtype.
        saved: of (rows,) each, in fp32, as `arguments` takes them.

    Raises:
        ValueError: a tensor does not fit; the message names it, what it is and what it must be.
    """
    dy, x, weight = given["dy"], given["x"], given["weight"]
    check_tensors(what, {"x": x, "dy": dy, "weight": weight})
    check_tensors(what, saved, ("fp32",))
    check_shape(what, "dy", dy, x.shape)
    check_shape(what, "weight", weight, x.shape[-1:])
    for name, tensor in saved.items():
        check_shape(what, name, tensor, (x.shape[:-1].numel(),))
    if not x.numel():
        # A mean is saved where there is a bias.
        return (torch.empty_like(x), *(torch.zeros_like(weight) for _ in saved))
    columns = {name: tensor.contiguous() for name, tensor in saved.items()}
    launch = made_by(as_rows(dy), as_rows(x), weight.contiguous(), **columns)
    made = _launched(tuned, launch)
    if made is None:
        parts = launch["parts_ptr"].view(-1, launch["programs"], launch["cols"])
        made = (launch["dx_ptr"], *sum_parts(parts, weight.dtype))
    return (made[0].view(x.shape), *made[1:])


def _launched(tuned: Any, arguments: Mapping[str, Any]) -> Any:
    """Launch a tuned kernel; return all gradients if the vendor was called for it."""
    named = None if is_dynamo_compiling() else tuned.options.choices.get("alternatives")
    if not named:
        tuned[grid](**arguments)
        return None
    with unfinished(named["torch"]) as called:
        tuned[grid](**arguments)
    return called[0].all if called else None


def of_layernorm(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor,
    **_: bool,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """Compute the gradients of x, weight and bias; PyTorch wants a bias, and reads none."""
    columns = (mean[:, None], rstd[:, None], weight, weight, [True] * 3)
    return _by_rows(torch.ops.aten.native_layer_norm_backward, dy, x, weight, *columns)


def of_rmsnorm(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, rstd: torch.Tensor, **_: bool
) -> tuple[torch.Tensor, ...]:
    """Compute the gradients of x and weight; PyTorch has the function from 2.9 on."""
    columns = (rstd[:, None], weight, [True] * 2)
    return _by_rows(torch.ops.aten._fused_rms_norm_backward, dy, x, weight, *columns)


def _by_rows(backward: Any, dy: Any, x: Any, weight: Any, *rest: Any) -> tuple[torch.Tensor, ...]:
    rows = (tensor.reshape(-1, tensor.shape[-1]) for tensor in (dy, x))
    dx, *sums = backward(*rows, weight.shape, *rest)
    return (dx.view(x.shape), *sums)


of_weight, of_both = partial(arguments, ()), partial(arguments, (2,))
