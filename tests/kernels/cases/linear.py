"""Linear layer; the kernel's variants are checked in `test_matmul.py`."""

from __future__ import annotations

from tests.kernels.accuracy import Case
from tests.kernels.cases.matmul import WALK

CASE = Case(
    shapes=(
        {"batch": 1, "M": 17, "N": 40, "K": 65},
        {"batch": 1, "M": 1, "N": 1, "K": 1},
        {"batch": 2, "M": 64, "N": 128, "K": 32},
        {"batch": 1, "M": 130, "N": 129, "K": 97},
    ),
    configs=(WALK,),
    varied=("x", "weight", "bias"),
    keywords=(
        {"activation": "none"},
        {"activation": "relu"},
        {"activation": "silu"},
        {"bias": None},
    ),
    most=1e15,
    on_gpu={"fp32": "tf32", "fp16": "fp16 sums", "bf16": "bf16 sums"},
)
