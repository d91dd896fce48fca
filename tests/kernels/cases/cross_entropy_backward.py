"""The gradient of cross entropy from what forward keeps."""

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
    ),
    configs=(Config({"ROWS": 2, "BLOCK": 128}), Config({"ROWS": 8, "BLOCK": 512})),
    varied=("logits", "grad"),
    keywords=({"ignore_index": 7},),
)
