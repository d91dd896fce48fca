"""A GRU layer with one launch a step."""

from __future__ import annotations

from functools import partial

from asmtune.core.config import Config
from tests.kernels.accuracy import Case
from tests.kernels.recurrent import ROUNDED, extremes

CASE = Case(
    shapes=(
        {"seq": 3, "batch": 3, "input": 7, "hidden": 13},
        {"seq": 1, "batch": 1, "input": 1, "hidden": 1},
        {"seq": 3, "batch": 1, "input": 20, "hidden": 50},
        {"seq": 2, "batch": 17, "input": 8, "hidden": 16},
    ),
    configs=(
        Config({"UNITS": 4, "LANES": 1, "BLOCK": 32}),
        Config({"UNITS": 32, "LANES": 16, "BLOCK": 16}),
    ),
    varied=("x",),
    most=1e15,
    rounded=ROUNDED,
    on_gpu={"fp32": "tf32"},
    extras=(partial(extremes, "gru_step"),),
    also=("_gru_backward_walk",),
)
