"""Attention's three gradients in one launch, and the two launches that are timed beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from asmtune.core.alternatives import call_of
from asmtune.core.config import Config
from asmtune.workshop.kernel_checks.reports import as_tuple
from asmtune.workshop.kernel_checks.tolerances import excess
from tests.kernels.accuracy import launched_with, module_of
from tests.kernels.cases.attention import ROUNDED, heads, of_gradients


def apart(device: str) -> dict[str, float]:
    """Return what the two kernels write of a launch's arguments, even and odd, and of few rows."""
    module, found = module_of("attention_backward"), {}
    for shape in (heads(1, 2, 2, 64, 64, 32, 1), heads(2, 4, 2, 40, 70, 16, 0)):
        problem = module.problem(shape, "fp16", device)
        for output in module.OUTPUTS:
            problem.arguments[output].fill_(float("nan"))
        config = module_of("attention_backward_q").DEFAULT
        with launched_with(config, "attention_backward_q", "attention_backward_kv"):
            call_of(module._launch_apart, module.kernel.arg_names, problem.arguments)()
        wanted = as_tuple(module.reference(problem.arguments))
        for output, want in zip(module.OUTPUTS, wanted, strict=True):
            found[f"{output} of {shape}"] = excess(problem.arguments[output], want, ROUNDED)
    return found


def options(device: str) -> dict[str, float]:
    """Return how far the gradients of a window, of weights dropped and of fp32 are off."""
    module, found = module_of("attention_backward"), {}
    forward = module_of("attention")
    more: list[dict[str, Any]] = [{"window": 9}, {"dropout": 0.3, "seed": 5}, {"scale": 0.5}]
    for given in more:
        inputs = module.inputs(heads(1, 2, 1, 40, 36, 16, 1), "fp32", device)
        how = module.Attending(causal=True, **given)
        inputs |= forward.exact.forward_of(inputs, how)
        with launched_with(module.DEFAULT, "attention_backward", *APART):
            got = module.attention_backward(**inputs, **given)
        exact = {name: x.double() if name != "causal" else x for name, x in inputs.items()}
        for name, mine, want in zip("qkv", got, module.baseline(**exact, **given), strict=True):
            found[f"d{name} with {given}"] = excess(mine, want, CASE.rows(device, "fp32"))
    return found


APART = ("attention_backward_q", "attention_backward_kv")

CASE = replace(
    of_gradients(
        Config({"HELD": 64, "STEP": 16}, num_stages=1),
        Config({"HELD": 16, "STEP": 64}, num_stages=3),
    ),
    rounded={**ROUNDED, "fp16": "fp16 weight gradients"},
    extras=(apart, options),
)
