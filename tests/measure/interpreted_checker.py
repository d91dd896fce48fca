"""Rehearsals of real kernels on CPU tensors, for Triton's interpreter.

They are given the kernels' effects, for the interpreter makes no IR.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from asmtune.measure.checks.checker import OutputChecker
from asmtune.measure.checks.effects import Effects
from asmtune.measure.checks.roles import CheckOptions
from tests.measure import effect_kernels as kernels

N, BLOCK = 1000, 64
GRID = (-(-N // BLOCK),)


def found(
    arguments: Mapping[str, Any],
    effects: Mapping[str, list[str]],
    runs: Mapping[str, Callable[[], object]],
) -> dict[str, Any]:
    """Return the check's verdict on each run, the first being the default."""
    before = {name: tensor.clone() for name, tensor in arguments.items()}
    sets = {name: frozenset(names) for name, names in effects.items()}
    with OutputChecker(arguments, Effects(**sets), CheckOptions()) as checker:
        failure = checker.set_reference(next(iter(runs.values())))
        assert failure is None, failure
        kinds = {}
        for name, run in runs.items():
            failure = checker.check(run)
            kinds[name] = failure.kind if failure else None
    kept = all(torch.equal(arguments[name], before[name]) for name in before)
    return {**kinds, "kept": kept}


def rehearsals(effects: Mapping[str, Mapping[str, list[str]]]) -> dict[str, Any]:
    """Return what is found in each kernel's runs, right and wrong."""
    x, y = torch.randn(2, N, generator=torch.Generator().manual_seed(1))
    memory = torch.ones(2, GRID[0] * BLOCK)
    row = memory[:, :N]  # one that is long enough, one with a neighbour behind it

    def add(kernel: Any) -> Callable[[], object]:
        def run() -> None:
            for out in row:
                kernel[GRID](x, y, out, N, BLOCK=BLOCK)

        return run

    def scale(times: int) -> Callable[[], object]:
        return lambda: [kernels.scale_in_place[GRID](x, N, BLOCK=BLOCK) for _ in range(times)]

    total = torch.full((1,), 5.0)

    def count(times: int) -> Callable[[], object]:
        def run() -> None:
            for _ in range(times):
                kernels.sum_into[GRID](x, total, N, BLOCK=BLOCK, SPLIT=GRID[0])

        return run

    return {
        "add": found(
            {"x_ptr": x, "y_ptr": y, "out_ptr": row},
            effects["add"],
            {
                "right": add(kernels.add),
                "hole": add(kernels.add_but_the_last),
                "beyond": add(kernels.add_without_mask),
            },
        ),
        "scale": found({"x_ptr": x}, effects["scale"], {"right": scale(1), "wrong": scale(2)}),
        "sum": found(
            {"x_ptr": x, "total_ptr": total}, effects["sum"], {"right": count(1), "twice": count(2)}
        ),
    }
