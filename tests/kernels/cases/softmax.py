"""Softmax, of rows that are held whole and of rows in blocks."""

from __future__ import annotations

from asmtune.core.config import Config
from tests.kernels.accuracy import Case

CASE = Case(
    shapes=(
        {"rows": 5, "cols": 70},
        {"rows": 3, "cols": 781},
        {"rows": 1, "cols": 1},
        {"rows": 9, "cols": 512},
        {"rows": 2, "cols": 1003},
        {"rows": 4, "cols": 3},
    ),
    configs=(
        Config({"ROWS": 2, "BLOCK": 32, "STAGES": 1}),
        Config({"ROWS": 4, "BLOCK": 1024, "STAGES": 1}),
        Config({"ROWS": 1, "BLOCK": 256, "STAGES": 2}),
    ),
    varied=("x",),
)
