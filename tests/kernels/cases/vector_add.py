"""Vector addition."""

from __future__ import annotations

import torch

from asmtune.core.config import Config
from asmtune.workshop.kernel_checks.tolerances import excess
from tests.kernels.accuracy import Case, launched_with, module_of


def matrices(device: str) -> dict[str, float]:
    """Matrices of one layout, of two, without elements, and of one element repeated."""
    module = module_of("vector_add")
    x, y = (torch.randn(30, 40, device=device) for _ in range(2))
    pairs = {
        "both transposed": (x.T, y.T),
        "one transposed": (x, y.T.contiguous().T),
        "one repeated": (x, y[:1, :1].expand(30, 40)),
        "parts": (x[3:20, 5:9], y[3:20, 5:9]),
        "nothing": (x[:0], y[:0]),
        "a number": (x[0, 0], y[0, 0]),
    }
    with launched_with(module.DEFAULT, "vector_add"):
        found = {
            what: excess(module.vector_add(a, b), a.double() + b.double())
            for what, (a, b) in pairs.items()
        }
        kept = module.vector_add(x.T, y.T).stride() == x.T.stride()
    return {**found, "layout is kept": 0.0 if kept else 2.0}


CASE = Case(
    shapes=({"n": 1000}, {"n": 1}, {"n": 1024}, {"n": 1025}, {"n": 4099}),
    configs=(Config({"BLOCK": 256}), Config({"BLOCK": 2048})),
    varied=("x", "y"),
    extras=(matrices,),
)
