"""The GEMM on CPU tensors against float64, for Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from asmtune.core.config import Config
from asmtune.core.dtypes import torch_dtype
from asmtune.kernels import tiled_matmul as matmul
from asmtune.triton_api.interpreter import exact_floats

Pair = tuple[torch.Tensor, torch.Tensor]

SIZES = ((1, 1, 1), (16, 16, 32), (17, 33, 65), (64, 128, 32), (130, 129, 97), (700, 5, 3))
TILES = (
    Config({"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 64, "GROUP_M": 1}),
    Config({"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16, "GROUP_M": 2}),
    Config({"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 100}),
)


def matrix(rows: int, columns: int, dtype: str) -> torch.Tensor:
    """Random values of a dtype."""
    if dtype == "i8":
        return torch.randint(-128, 128, (rows, columns), dtype=torch.int8)
    return torch.randn(rows, columns).to(torch_dtype(dtype))


def excess(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> float:
    """The largest error over what rounding explains; 0 for an exact result."""
    exact = a.double() @ b.double()
    error = (c.double() - exact).abs()
    if not c.dtype.is_floating_point:
        return float(error.max())
    scale = a.double().abs() @ b.double().abs()
    rounding = torch.finfo(c.dtype).eps * exact.abs() + torch.finfo(c.dtype).tiny
    summing = a.shape[1] * torch.finfo(torch.float32).eps * scale
    return float((error / (rounding + summing)).max())


LAYOUTS: dict[str, Callable[[str], Pair]] = {
    "a transposed": lambda t: (matrix(65, 70, t).T, matrix(65, 40, t)),
    "b transposed": lambda t: (matrix(70, 65, t), matrix(40, 65, t).T),
    "every other column": lambda t: (matrix(70, 130, t)[:, ::2], matrix(65, 80, t)[:, ::2]),
    "every third row": lambda t: (matrix(210, 65, t)[::3], matrix(195, 40, t)[::3]),
    "inner block": lambda t: (matrix(90, 90, t)[5:75, 7:72], matrix(90, 90, t)[3:68, 1:41]),
    "one row repeated": lambda t: (matrix(1, 65, t).expand(70, 65), matrix(65, 40, t)),
}


@exact_floats()
def sizes(dtype: str) -> dict[str, Any]:
    """Products of all sizes, tiles and layouts, each with its error and its result's dtype."""
    found = {}
    for m, n, k in SIZES:
        a, b = matrix(m, k, dtype), matrix(k, n, dtype)
        c = matmul.tiled_matmul(a, b)
        found[f"{m}x{n}x{k}"] = (excess(a, b, c), str(c.dtype), tuple(c.shape) == (m, n))
    for name, make in LAYOUTS.items():
        a, b = make(dtype)
        c = matmul.tiled_matmul(a, b)
        found[name] = (excess(a, b, c), str(c.dtype), tuple(c.shape) == (70, 40))
    for tile in TILES:
        problem = matmul.problem({"M": 100, "N": 75, "K": 50}, dtype, "cpu")
        arguments = problem.arguments
        arguments["c_ptr"].fill_(99)
        matmul.kernel[problem.grid](**arguments, **tile.all_kwargs())
        c = arguments["c_ptr"]
        error = excess(arguments["a_ptr"], arguments["b_ptr"], c)
        exact = torch.equal(
            matmul.reference(arguments),
            arguments["a_ptr"].double() @ arguments["b_ptr"].double(),
        )
        found[str(tile)] = (error, str(c.dtype), exact)
    return found
