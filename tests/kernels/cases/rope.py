"""Rotary embedding and its gradient."""

from __future__ import annotations

from asmtune.core.config import Config
from asmtune.workshop.kernel_checks.tolerances import excess
from tests.kernels.accuracy import Case, launched_with, module_of


def strided(device: str) -> dict[str, float]:
    """Batch and sequence swapped, every other head, a sequence of a longer one, and nothing."""
    module = module_of("rope")
    shape = {"seq": 6, "batch": 2, "heads": 4, "dim": 64}
    x, cos, sin = module.inputs(shape, "fp32", device).values()
    views = {
        "batch first": x.transpose(0, 1).contiguous().transpose(0, 1),
        "every other head": x.repeat_interleave(2, 2)[:, :, ::2],
        "every other position": x.repeat_interleave(2, 0)[::2],
    }
    with launched_with(module.DEFAULT, "rope"):
        found = {
            what: excess(module.rope(view, cos, sin), module.baseline(x.double(), cos, sin))
            for what, view in views.items()
        }
        empty = module.rope(x[:, :0], cos, sin)
        back = module.rope(module.rope(x, cos, sin), cos, -sin)
    there_and_back = excess(back, x.double())
    return {**found, "there and back": there_and_back, "nothing": excess(empty, x[:, :0].double())}


CASE = Case(
    shapes=(
        {"seq": 5, "batch": 2, "heads": 3, "dim": 70},
        {"seq": 3, "batch": 1, "heads": 5, "dim": 128},
        {"seq": 1, "batch": 1, "heads": 1, "dim": 2},
        {"seq": 2, "batch": 3, "heads": 3, "dim": 1030},
        {"seq": 4, "batch": 2, "heads": 1, "dim": 1024},
    ),
    configs=(
        Config({"STEPS": 1, "ROWS": 4, "BLOCK": 64}),
        Config({"STEPS": 2, "ROWS": 1, "BLOCK": 512}),
    ),
    varied=("x", "cos", "sin"),
    gradients=("x",),
    extras=(strided,),
)
