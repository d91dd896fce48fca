"""GELU in both forms."""

from __future__ import annotations

from asmtune.core.config import Config
from tests.kernels.accuracy import Case

CASE = Case(
    shapes=(
        {"n": 1000, "tanh": 0},
        {"n": 1000, "tanh": 1},
        {"n": 1, "tanh": 0},
        {"n": 2048, "tanh": 1},
        {"n": 4099, "tanh": 0},
    ),
    configs=(Config({"BLOCK": 256}), Config({"BLOCK": 2048})),
    varied=("x",),
    keywords=({"approximate": "tanh"}, {"approximate": "none"}),
)
