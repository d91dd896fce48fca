"""RMSNorm's gradients from what forward keeps."""

from __future__ import annotations

from asmtune.core.config import Config
from tests.kernels.accuracy import Case

CASE = Case(
    shapes=(
        {"rows": 5, "cols": 70},
        {"rows": 3, "cols": 781},
        {"rows": 1, "cols": 7},
        {"rows": 33, "cols": 64},
        {"rows": 2, "cols": 1000},
    ),
    configs=(Config({"ROWS": 1, "BLOCK": 32}), Config({"ROWS": 4, "BLOCK": 1024})),
    varied=("dy", "x", "weight"),
    most=1e12,
)
