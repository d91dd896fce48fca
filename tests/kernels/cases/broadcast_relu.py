"""ReLU of a matrix plus a row of biases."""

from __future__ import annotations

from asmtune.core.config import Config
from tests.kernels.accuracy import Case

CASE = Case(
    shapes=(
        {"rows": 5, "cols": 70},
        {"rows": 9, "cols": 256},
        {"rows": 1, "cols": 1},
        {"rows": 3, "cols": 1000},
        {"rows": 33, "cols": 17},
    ),
    configs=(Config({"BLOCK_M": 2, "BLOCK_N": 64}), Config({"BLOCK_M": 16, "BLOCK_N": 128})),
    varied=("x", "bias"),
)
