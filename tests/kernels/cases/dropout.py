"""Dropout from a seed."""

from __future__ import annotations

import torch

from asmtune.core.config import Config
from asmtune.workshop.kernel_checks.tolerances import excess
from tests.kernels.accuracy import Case, launched_with, module_of


def transposed(device: str) -> dict[str, float]:
    """Elements count as they lie in memory, and backward drops the same ones in any layout."""
    module, x = module_of("dropout"), torch.ones(30, 41, device=device)
    mine = x.T.detach().requires_grad_()
    with launched_with(module.DEFAULT, "dropout"):
        got = module.dropout(mine, 0.5, 5)
        got.backward(torch.ones(41, 30, device=device))
    assert mine.grad is not None
    want = module.baseline(x.double(), 0.5, 5).T
    return {"transposed": excess(got.detach(), want), "its gradient": excess(mine.grad, want)}


def shares(device: str) -> dict[str, float]:
    """The share that is dropped, by six deviations of a binomial; seeds that differ; all of it."""
    module, n = module_of("dropout"), 1 << 14
    x = torch.ones(n, device=device)
    found = {}
    with launched_with(module.DEFAULT, "dropout"):
        for p in (0.1, 0.5, 0.9):
            dropped = float((module.dropout(x, p, 5) == 0).sum()) / n
            found[f"share at {p}"] = abs(dropped - p) / (6 * (p * (1 - p) / n) ** 0.5)
        differ = (module.dropout(x, 0.5, 5) != module.dropout(x, 0.5, 6)).sum()
        found["seeds differ in a half"] = abs(float(differ) / n - 0.5) / (6 * 0.5 / n**0.5)
        found["p of 1 drops all"] = float(module.dropout(x, 1.0, 5).abs().max()) * 1e9
    return found | transposed(device)


CASE = Case(
    shapes=({"n": 1000}, {"n": 1}, {"n": 1024}, {"n": 1026}, {"n": 4099}),
    configs=(Config({"BLOCK": 128}), Config({"BLOCK": 4096})),
    varied=("x",),
    gradients=("x",),
    keywords=({"p": 0.0}, {"p": 0.9}, {"seed": 0}, {"seed": (1 << 40) + 7}),
    extras=(shares,),
)
