"""`benchmarks.backward_passes` on CPU tensors, for Triton's interpreter."""

from __future__ import annotations

from typing import Any

import torch

from asmtune.core.config import Config
from asmtune.kernels import _gru_backward, gru
from asmtune.triton_api.interpreter import exact_floats
from asmtune.workshop.kernel_checks.tolerances import excess
from tests.kernels.accuracy import launched_with

_IMAGE = {"batch": 2, "height": 5, "width": 4, "taps": 3, "stride": 1}
ALONE = Config({"UNITS": 16, "LANES": 8, "SPLIT": 1, "TEAMS": 1}, num_warps=1, num_stages=1)


@exact_floats()
def states(lanes: int, split: int, teams: int, hidden: int, batch: int, seq: int) -> list[float]:
    """Return the errors of the GRU's state gradients by a program that holds all units."""
    torch.manual_seed(0)
    axes = {"UNITS": 32, "LANES": lanes, "SPLIT": split, "TEAMS": teams}
    shape = {"seq": seq, "batch": batch, "hidden": hidden}
    given = _gru_backward.problem(shape, "fp16", "cpu").arguments
    names = ("factors", "keep", "dy", "weight")
    with launched_with(Config(axes, num_warps=1, num_stages=1), "_gru_backward"):
        got = _gru_backward.state_gradients(*(given[f"{name}_ptr"] for name in names))
    want = _gru_backward.reference(given).values()
    return [excess(a, b, {"fp32": "fp16 recurrent"}) for a, b in zip(got, want, strict=True)]


@exact_floats()
def kept(dtype: str) -> float:
    """Return the error of the first state's gradient after 200 steps."""
    torch.manual_seed(0)
    given = gru.inputs({"seq": 200, "batch": 1, "input": 4, "hidden": 16}, dtype, "cpu")
    given["bias_ih"][16:32] = 6.0  # update gates of 0.9975
    want = _of_first(gru.baseline, {name: tensor.double() for name, tensor in given.items()})
    with launched_with(ALONE, "gru", "_gru_backward"):
        return excess(_of_first(gru.gru, given), want, {dtype: f"{dtype} recurrent"})


def _of_first(layer: Any, given: dict[str, torch.Tensor]) -> torch.Tensor:
    """Differentiate the sum of the last state with respect to the first."""
    leaf = given["h0"].clone().requires_grad_()
    (grad,) = torch.autograd.grad(layer(**{**given, "h0": leaf})[0][-1].sum(), leaf)
    return grad
