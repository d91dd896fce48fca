"""Attention's gradient of queries, and the sums of dy * y.

Layouts and options are checked with `attention`, whose gradients these are. Values of
queries and keys that do not fit lse would be no gradient of anything.
"""

from __future__ import annotations

from asmtune.core.config import Config
from tests.kernels.cases.attention import of_gradients

CASE = of_gradients(
    Config({"BLOCK_M": 32, "BLOCK_N": 64}, num_stages=2),
    Config({"BLOCK_M": 16, "BLOCK_N": 32}, num_stages=3),
)
