"""LayerNorm's gradients from what forward keeps."""

from __future__ import annotations

import torch

from asmtune.core.config import Config
from asmtune.kernels._rows import sum_parts
from asmtune.workshop.kernel_checks.tolerances import excess
from tests.kernels.accuracy import Case


def sums(device: str) -> dict[str, float]:
    """Sums of parts: of one and of several blocks of programs and columns, one and two at once."""
    found = {}
    for shape in ((2, 600, 70), (1, 130, 4100), (2, 1, 1)):
        parts = torch.randn(shape, device=device)
        for dtype in (torch.float32, torch.float16):
            results, exact = sum_parts(parts, dtype), parts.double().sum(1)
            assert [result.dtype for result in results] == [dtype] * len(exact)
            found |= {
                f"{shape} {dtype} {place}": excess(result, exact[place])
                for place, result in enumerate(results)
            }
    return found


CASE = Case(
    shapes=(
        {"rows": 5, "cols": 70},
        {"rows": 3, "cols": 781},
        {"rows": 1, "cols": 7},
        {"rows": 33, "cols": 64},
        {"rows": 2, "cols": 1000},
    ),
    configs=(Config({"ROWS": 1, "BLOCK": 32}), Config({"ROWS": 4, "BLOCK": 1024})),
    varied=("dy", "x", "weight"),
    most=1e12,
    extras=(sums,),
)
