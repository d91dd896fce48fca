"""The template."""

from __future__ import annotations

from asmtune.core.config import Config
from tests.kernels.accuracy import Case

CASE = Case(
    shapes=(
        {"M": 17, "N": 33, "K": 65},
        {"M": 1, "N": 1, "K": 1},
        {"M": 64, "N": 128, "K": 32},
        {"M": 130, "N": 129, "K": 97},
    ),
    configs=(
        Config({"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 64, "GROUP_M": 1}),
        Config({"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 100}),
    ),
    varied=("a", "b"),
    most=1e15,
    on_gpu={"fp32": "tf32", "fp16": "fp16 sums", "bf16": "bf16 sums"},
    on_gpu_of={"fp8e4nv": {"fp16": "fp8 sums"}},
)
