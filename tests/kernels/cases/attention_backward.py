"""Attention's gradients, whose layouts and further options are checked with `attention`.

Values of queries and keys that do not fit lse would be no gradient of anything.
"""

from __future__ import annotations

from typing import Any

from asmtune.core.config import Config
from asmtune.workshop.kernel_checks.tolerances import excess
from tests.kernels.accuracy import Case, doubled, launched_with, module_of
from tests.kernels.cases.attention import ON_GPU, ROUNDED, blocks, heads

QUERIES = "_attention_backward_q"


def queries(device: str) -> dict[str, float]:
    """Return how far the gradients of queries are off by further configs, even and odd sizes."""
    module, found = module_of("attention_backward"), {}
    for shape in (heads(1, 2, 2, 64, 64, 32, 1), heads(2, 4, 2, 40, 70, 16, 0)):
        given = module.inputs(shape, "fp16", device)
        want = module.baseline(**doubled(given))[0]
        for config in (blocks(32, 64), blocks(16, 32, stages=3)):
            with launched_with(config, QUERIES, "attention_backward"):
                (got,) = module.by_two_launches(**given, keys=False)
            found[f"dq of {shape} by {config}"] = excess(got, want, ROUNDED)
    return found


def options(device: str) -> dict[str, float]:
    """Return how far the gradients of a window, of weights dropped and of another scale are off."""
    module, found = module_of("attention_backward"), {}
    forward = module_of("attention")
    more: list[dict[str, Any]] = [{"window": 9}, {"dropout": 0.3, "seed": 5}, {"scale": 0.5}]
    for given in more:
        inputs = module.inputs(heads(1, 2, 1, 40, 36, 16, 1), "fp32", device)
        how = module.Attending(causal=True, **given)
        inputs |= forward.exact.forward_of(inputs, how)
        with launched_with(module.DEFAULT, "attention_backward", QUERIES):
            got = module.attention_backward(**inputs, **given)
        want = module.baseline(**doubled(inputs), **given)
        for name, mine, exact in zip("qkv", got, want, strict=True):
            found[f"d{name} with {given}"] = excess(mine, exact, CASE.rows(device, "fp32"))
    return found


CASE = Case(
    shapes=(
        heads(1, 2, 2, 40, 70, 16, 0),
        heads(1, 1, 1, 64, 64, 32, 1),
        heads(1, 2, 1, 33, 20, 16, 1),
        heads(1, 1, 1, 1, 9, 40, 0),
        heads(1, 2, 1, 40, 64, 24, 1),
        heads(1, 1, 1, 35, 20, 8, 0),
    ),
    configs=(
        Config({"BLOCK_M": 64, "BLOCK_N": 32}, num_stages=1),
        Config({"BLOCK_M": 16, "BLOCK_N": 64}, num_stages=3),
    ),
    varied=("dy", "v"),
    most=16.0,
    also=(QUERIES,),
    on_gpu=ON_GPU,
    rounded={**ROUNDED, "fp16": "fp16 weight gradients"},
    extras=(queries, options),
    is_parted=True,
)
