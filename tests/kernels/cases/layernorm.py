"""LayerNorm and its gradients."""

from __future__ import annotations

from asmtune.core.config import Config
from tests.kernels.accuracy import Case

CASE = Case(
    shapes=(
        {"rows": 5, "cols": 70},
        {"rows": 3, "cols": 781},
        {"rows": 1, "cols": 7},
        {"rows": 9, "cols": 512},
        {"rows": 2, "cols": 1000},
    ),
    configs=(
        Config({"ROWS": 2, "BLOCK": 32, "STAGES": 1}),
        Config({"ROWS": 4, "BLOCK": 1024, "STAGES": 1}),
        Config({"ROWS": 1, "BLOCK": 256, "STAGES": 2}),
    ),
    varied=("x", "weight"),
    gradients=("x", "weight", "bias"),
    keywords=({"eps": 0.1},),
    most=1e15,
    also=("layernorm_backward",),
)
