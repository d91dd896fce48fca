"""Matrix product; more of its variants and layouts are checked in `test_matmul.py`."""

from __future__ import annotations

from asmtune.core.config import Config
from tests.kernels.accuracy import Case

PLAIN = {"LOADS": "pointers", "PERSISTENT": False, "SPLIT_K": 1, "GROUP_M": 8}
WALK = Config({**PLAIN, "PERSISTENT": True, "BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32})

CASE = Case(
    shapes=(
        {"batch": 1, "M": 17, "N": 33, "K": 65},
        {"batch": 1, "M": 1, "N": 1, "K": 1},
        {"batch": 3, "M": 64, "N": 128, "K": 32},
        {"batch": 1, "M": 130, "N": 129, "K": 97},
    ),
    configs=(WALK,),
    varied=("a", "b"),
    most=1e15,
    on_gpu={"fp32": "tf32", "fp16": "fp16 sums", "bf16": "bf16 sums"},
    on_gpu_of={"fp8e4nv": {"fp16": "fp8 sums"}},
)
