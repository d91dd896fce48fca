"""Attention's gradients of keys and values.

Layouts and options are checked with `attention`, whose gradients these are. Values of
queries and keys that do not fit lse would be no gradient of anything. Where heads share
keys, each leaves its own in fp32, of rounded weights: the first two shapes, whose launches
are compared output by output, have no such heads.
"""

from __future__ import annotations

from asmtune.core.config import Config
from tests.kernels.cases.attention import of_gradients

CASE = of_gradients(
    Config({"BLOCK_M": 64, "BLOCK_N": 32}, num_stages=1),
    Config({"BLOCK_M": 16, "BLOCK_N": 64}, num_stages=3),
)
