"""A GRU layer in one launch; programs that exchange states are checked on a GPU alone.

Triton's interpreter runs one program after the other, so that here one program has all units:
16, 64 and 128 are those of the configs. `tests/gpu/test_gru_gpu.py` has the others.
"""

from __future__ import annotations

from functools import partial

from asmtune.core.config import Config
from tests.kernels.accuracy import Case
from tests.kernels.recurrent import ROUNDED, extremes

CASE = Case(
    shapes=(
        {"seq": 3, "batch": 3, "input": 7, "hidden": 13},
        {"seq": 1, "batch": 1, "input": 1, "hidden": 1},
        {"seq": 6, "batch": 1, "input": 20, "hidden": 16},
        {"seq": 4, "batch": 19, "input": 8, "hidden": 16},
    ),
    configs=(
        Config({"UNITS": 16, "LANES": 1, "SPLIT": 1, "TEAMS": 1}),
        Config({"UNITS": 64, "LANES": 16, "SPLIT": 2, "TEAMS": 2}),
        Config({"UNITS": 64, "LANES": 8, "SPLIT": 1, "TEAMS": 4}),
        Config({"UNITS": 64, "LANES": 8, "SPLIT": 4, "TEAMS": 1}),
        Config({"UNITS": 128, "LANES": 8, "SPLIT": 8, "TEAMS": 2}),
    ),
    varied=("x",),
    most=1e15,
    rounded=ROUNDED,
    on_gpu={"fp32": "tf32"},
    extras=(partial(extremes, "gru"),),
    also=("_gru_backward",),
)
