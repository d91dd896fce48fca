"""Linear layer y = activation(x W^T + bias), one launch of the matrix product's kernel.

Weights lie as PyTorch's `nn.Linear` keeps them. The kernel, its variants, its space and its
stored configs are `matmul`'s.

Shapes: x is (.., in), W (out, in), the bias (out,), y (.., out).
Dtypes: fp16, bf16, fp32 (multiplied as tf32). Sums, bias and activation are in fp32.
Layout: any strides; x is copied where its leading axes do not join into one.
Source: as of matmul; bias and activation before the sum leaves registers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from asmtune.kernels import matmul
from asmtune.kernels._common import check_tensors, problems
from asmtune.kernels._gemm import DEFAULT, space
from asmtune.kernels._gemm_host import (
    activate,
    as_tf32,
    by_gluon,
    grid,
    has_epilogue,
    launch,
    product,
)
from asmtune.kernels.matmul import (
    KNOWN,
    OUTPUTS,
    kernel,
    random_matrices,
    reference,
)
from asmtune.runtime.replay_calls import replay_calls

__all__ = ["DEFAULT", "OUTPUTS", "kernel", "linear", "reference", "space"]

DTYPES = ("bf16", "fp16", "fp32")

OPTIONAL = {"batch": 1}

_EXTENTS = (
    (4096, 3072, 768),
    (1, 4096, 4096),
    (32, 8192, 2048),
    (256, 3072, 768),
    (512, 11008, 4096),
    (2048, 4096, 1024),
    (1536, 1536, 1536),
    (700, 900, 1100),
)

SHAPES = tuple({"batch": 1, "M": M, "N": N, "K": K} for M, N, K in _EXTENTS)


def inputs(shape: Mapping[str, int], dtype: str, device: str) -> dict[str, Any]:
    """Make random arguments of `linear` by name, with a bias and GELU."""
    K, N = shape["K"], shape["N"]
    x = random_matrices((shape["batch"] * shape["M"], K), dtype, device)
    weight = random_matrices((N, K), dtype, device) * K**-0.5
    bias = random_matrices((N,), dtype, device)
    return {"x": x, "weight": weight, "bias": bias, "activation": "gelu"}


def _arguments(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, activation: str
) -> dict[str, Any]:
    """Give the arguments of a random problem's launch by name; rows are batch * M."""
    operands = product("linear", x, weight.mT, bias, activation, vendor=True)
    return operands.arguments(operands.result())


def baseline(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str = "none",
) -> torch.Tensor:
    """Compute the kernel's result in PyTorch."""
    return activate(torch.nn.functional.linear(x, weight, bias), activation)


def _cublas(x: Any, weight: Any, bias: Any = None, activation: str = "none", **_: bool) -> Any:
    if bias is not None and has_epilogue(x.dtype, activation):
        rows = x.reshape(-1, x.shape[-1])
        y = torch._addmm_activation(bias, rows, weight.mT)
        return y.view(*x.shape[:-1], weight.shape[0])
    with as_tf32(x.dtype):
        return baseline(x, weight, bias, activation)


def _gluon(x: Any, weight: Any, bias: Any = None, activation: str = "none", **_: bool) -> Any:
    """Compute `linear` by the Gluon kernel for Hopper."""
    return _by_hopper(x, weight, bias, activation)


@replay_calls
def _by_hopper(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, activation: str
) -> torch.Tensor:
    rows = x.reshape(-1, x.shape[-1])
    y = by_gluon(product("linear", rows, weight.mT, bias, activation))
    return y[0].reshape(*x.shape[:-1], weight.shape[0])


@replay_calls(alternatives={"cublas": _cublas, "gluon": _gluon})
def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str = "none",
    *,
    vendor: bool = True,
    gluon: bool = True,
) -> torch.Tensor:
    """Compute activation(x @ weight.T + bias) by the tuned kernel.

    Args:
        x: (.., in), of a dtype of DTYPES, on a GPU.
        weight: (out, in), of the same dtype.
        bias: (out,), of the same dtype.
        activation: "none", "relu", "silu" or "gelu" (by the error function).
        vendor: call cuBLAS where tuning has found it faster, and while it has not.
        gluon: on Hopper call the Gluon kernel where tuning has found it faster.

    Returns:
        (.., out), of the inputs' dtype.

    Raises:
        ValueError: shapes, dtypes or devices do not fit, a gradient is asked for, or `in` is 0.
    """
    check_tensors("linear", {"x": x, "weight": weight}, DTYPES)
    if x.ndim == 0 or weight.ndim != 2 or x.shape[-1] != weight.shape[1]:
        raise ValueError(
            f"linear: weight is {tuple(weight.shape)}, x is {tuple(x.shape)}; "
            "they must be (out, in) and (.., in)"
        )
    if x.shape[-1] == 0:
        raise ValueError(f"linear: x is {tuple(x.shape)}; it must have one element or more a row")
    rows = x.reshape(-1, x.shape[-1])
    operands = product("linear", rows, weight.mT, bias, activation, vendor=vendor)
    y = launch(
        (_alone, _beside_gluon, _beside_vendor, _tuned), operands, grid, vendor=vendor, gluon=gluon
    )
    return y[0].reshape(*x.shape[:-1], weight.shape[0])


problem = problems(kernel, "linear", inputs, _arguments, grid, KNOWN)
_tuned, _alone = matmul._tuned, matmul._alone
_beside_gluon, _beside_vendor = matmul._beside_gluon, matmul._beside_vendor
