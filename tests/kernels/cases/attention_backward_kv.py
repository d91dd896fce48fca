"""Attention's gradients of keys and values.

Layouts and options are checked with `attention`, whose gradients these are. Values of
queries and keys that do not fit lse would be no gradient of anything. Where heads share
keys, each leaves its own in fp32, of rounded weights: the first two shapes, whose launches
are compared output by output, have no such heads.
"""

from __future__ import annotations

from asmtune.config import Config
from tests.kernels.accuracy import Case
from tests.kernels.cases.attention import NOT_INTERPRETED, ON_GPU, ROUNDED, heads

CASE = Case(
    shapes=(
        heads(1, 2, 2, 40, 70, 16, 0),
        heads(1, 1, 1, 64, 64, 32, 1),
        heads(1, 2, 1, 33, 20, 16, 1),
        heads(1, 1, 1, 1, 9, 16, 0),
    ),
    configs=(
        Config({"BLOCK_M": 64, "BLOCK_N": 32}, num_stages=1),
        Config({"BLOCK_M": 16, "BLOCK_N": 64}, num_stages=3),
    ),
    varied=("dy", "v"),
    most=16.0,
    on_gpu=ON_GPU,
    rounded=ROUNDED,
    not_interpreted=NOT_INTERPRETED,
)
