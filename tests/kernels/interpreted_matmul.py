"""Variants of the matrix product against float64, for Triton's interpreter and for a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from asmtune.core.dtypes import torch_dtype
from asmtune.kernels import matmul
from asmtune.kernels._gemm_host import grid, product
from asmtune.workshop.kernel_checks.tolerances import excess
from tests.kernels.accuracy import case_of

TILE = {"BLOCK_M": 32, "BLOCK_N": 16, "BLOCK_K": 32, "GROUP_M": 2}
VARIANTS = {
    f"{loads}, {way}": {"LOADS": loads, "PERSISTENT": persistent, "SPLIT_K": split, **TILE}
    for loads in ("pointers", "descriptors")
    for way, persistent, split in (
        ("tiles", False, 1),
        ("walking", True, 1),
        ("split by 2", False, 2),
        ("split by 8", False, 8),
    )
}


def matrices(*extents: int, dtype: str) -> torch.Tensor:
    """Random values of a dtype."""
    if dtype == "i8":
        return torch.randint(-128, 128, extents, dtype=torch.int8)
    return torch.randn(extents).to(torch_dtype(dtype))


LAYOUTS: dict[str, Callable[[str], tuple[torch.Tensor, torch.Tensor]]] = {
    "rows": lambda t: (matrices(40, 80, dtype=t), matrices(80, 32, dtype=t)),
    "odd extents": lambda t: (matrices(37, 65, dtype=t), matrices(65, 19, dtype=t)),
    "a transposed": lambda t: (matrices(80, 40, dtype=t).T, matrices(80, 32, dtype=t)),
    "b transposed": lambda t: (matrices(40, 80, dtype=t), matrices(32, 80, dtype=t).T),
    "both transposed": lambda t: (matrices(80, 40, dtype=t).T, matrices(32, 80, dtype=t).T),
    "every other": lambda t: (
        matrices(40, 112, dtype=t)[:, ::2],
        matrices(56, 64, dtype=t)[:, ::2],
    ),
    "inner block": lambda t: (
        matrices(60, 90, dtype=t)[5:42, 7:72],
        matrices(90, 60, dtype=t)[3:68, 1:21],
    ),
    "batch": lambda t: (matrices(2, 40, 64, dtype=t), matrices(2, 64, 32, dtype=t)),
    "batch by a matrix": lambda t: (matrices(2, 40, 64, dtype=t), matrices(64, 32, dtype=t)),
    "one row": lambda t: (matrices(1, 80, dtype=t), matrices(80, 32, dtype=t)),
    "few steps": lambda t: (matrices(40, 16, dtype=t), matrices(16, 32, dtype=t)),
}
"""Operands of two tiles each way, and of three steps, so that two programs share them unevenly."""

# Which elements are read where does not depend on what they are.
OF_ALL = ("odd extents", "b transposed")
CASES = [
    *(("fp16", layout) for layout in LAYOUTS),
    *((dtype, layout) for dtype in ("fp32", "fp8e4nv", "i8") for layout in OF_ALL),
]
UNALIGNED = ("odd extents", "every other", "inner block")
"""Layouts that descriptors cannot load."""


def errors(
    dtype: str, layout: str, device: str = "cpu", tile: Mapping[str, int] = TILE
) -> dict[str, list[Any]]:
    """Return, for every variant that may run on a layout, its error and the counts left."""
    found = {}
    a, b = (x.to(device) for x in LAYOUTS[layout](dtype))
    made, rows = product("matmul", a, b, None, "none"), case_of("matmul").rows(device, dtype)
    shape, kind = (*made.a.shape[:2], made.b.shape[2]), matmul.result_dtype(a.dtype)
    for name, tiles in VARIANTS.items():
        variant = {**tiles, **tile}
        c = torch.empty(shape, dtype=kind, device=device)
        # Splits that the space would not make of so few blocks need memory of their own.
        arguments = {**made.arguments(c), "sums_ptr": torch.empty(1 << 20, device=device)}
        aligned = arguments["MULTIPLE_STRIDES"] == 16
        if variant["LOADS"] == "descriptors" and not aligned:
            continue
        # The second of a split finds the counts as the first left them.
        for _ in range(2 if variant["SPLIT_K"] > 1 or device != "cpu" else 1):
            c.fill_(99)
            matmul.kernel[grid({**arguments, **variant})](**arguments, **variant)
            wanted = a.double() @ b.double()
            error = excess(c.reshape(wanted.shape), wanted, rows)
            left = int(arguments["count_ptr"].abs().sum())
            found[name] = [min(error, 1e300), left]
    return found
