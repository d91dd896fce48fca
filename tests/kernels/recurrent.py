"""What the GRU kernels' cases share: their tolerances, and special values of all arguments.

Errors of a state come back through the next one's gates. With weights as PyTorch initialises
them a step makes them smaller, so that the last of a thousand is off by no more than the tenth
is; with weights of 10, say, it makes them larger, and no bound holds. So that values are varied
of the inputs in all ways, and of the others by what a recurrence does not amplify.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, Final

import torch

from asmtune.core.config import Config
from asmtune.workshop.kernel_checks.tolerances import excess
from tests.kernels.accuracy import Case, case_of, launched_with, module_of

ROUNDED: Final = {"fp16": "fp16 recurrent", "bf16": "bf16 recurrent"}
"""Of the table of tolerances: inputs' parts of gates and states are rounded at each step."""

_SHAPE: Final = {"seq": 3, "batch": 2, "input": 8, "hidden": 13}


def _at(place: int, value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def fill(x: torch.Tensor) -> torch.Tensor:
        filled = x.clone()
        filled.view(-1)[place] = value
        return filled

    return fill


FILLS: Final[dict[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "zeros": torch.zeros_like,
    "tiny": lambda x: x * 1e-6,
    "twice as large": lambda x: 2 * x,
    "nan": _at(2, float("nan")),
    "inf": _at(2, float("inf")),
    "minus inf": _at(0, float("-inf")),
}


def extremes(name: str, device: str) -> dict[str, float]:
    """Each argument filled in each way, in fp32; by a second config with 0 and NaN alone."""
    module, case = module_of(name), case_of(name)
    torch.manual_seed(5)
    given = module.inputs(_SHAPE, "fp32", device)
    found = {}
    for config, ways in ((module.DEFAULT, tuple(FILLS)), (case.configs[0], ("zeros", "nan"))):
        with launched_with(config, name, *case.also):
            for argument, what in product(given, ways):
                filled = {**given, argument: FILLS[what](given[argument])}
                found[f"{argument} {what} by {config}"] = _off(name, case, filled, device)
            found |= {f"{what} by {config}": e for what, e in _gradients(name, config, device)}
            nothing = {**given, "x": given["x"][:0]}
            output, last = getattr(module, name)(**nothing)
            found[f"no steps by {config}"] = float(len(output) or not last.equal(given["h0"])) * 2
    return found


def _gradients(name: str, config: Config, device: str) -> Iterator[tuple[str, float]]:
    """Compare all arguments' gradients, through states and the last; without steps too."""
    module, case = module_of(name), case_of(name)
    for dtype, seq, batch in (("fp32", 4, 3), ("fp16", 3, 2), ("fp32", 1, 1), ("fp32", 0, 2)):
        given = module.inputs({**_SHAPE, "seq": seq, "batch": batch}, dtype, device)
        exact = {key: value.double().requires_grad_() for key, value in given.items()}
        mine = {
            key: value.mT.contiguous().mT.requires_grad_()
            for key, value in given.items()
            if value.ndim > 1
        }
        mine |= {key: given[key].requires_grad_() for key in ("bias_ih", "bias_hh")}
        mine = {key: mine[key] for key in given}
        output, last = getattr(module, name)(**mine)
        dy, dlast = torch.randn_like(output), torch.randn_like(last)
        ((output * dy).sum() + (last * dlast).sum()).backward()
        output, last = module.baseline(**exact)
        ((output * dy.double()).sum() + (last * dlast.double()).sum()).backward()
        for key, value in mine.items():
            grad = exact[key].grad
            want = torch.zeros_like(exact[key]) if grad is None else grad
            got = torch.zeros_like(value) if value.grad is None else value.grad
            yield (
                f"d{key} of {seq} steps of {batch} in {dtype}",
                excess(got, want, case.rows(device, dtype)),
            )


def _off(name: str, case: Case, given: dict[str, Any], device: str) -> float:
    module = module_of(name)
    got = getattr(module, name)(**given)
    want = module.baseline(**{key: value.double() for key, value in given.items()})
    rows = case.rows(device, "fp32")
    return max(excess(mine, exact, rows) for mine, exact in zip(got, want, strict=True))
