"""Attention's gradient of queries, and the sums of dy * y.

Layouts and options are checked with `attention`, whose gradients these are. Values of
queries and keys that do not fit lse would be no gradient of anything.
"""

from __future__ import annotations

from dataclasses import replace

from asmtune.core.config import Config
from tests.kernels.cases.attention import ROUNDED, of_gradients

CASE = replace(
    of_gradients(
        Config({"BLOCK_M": 32, "BLOCK_N": 64}, num_stages=2),
        Config({"BLOCK_M": 16, "BLOCK_N": 32}, num_stages=3),
    ),
    rounded={**ROUNDED, "fp16": "fp16 weight gradients"},
)
