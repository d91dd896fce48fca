"""Matrix product C = activation(A B + bias), whose variant is tuned like any axis.

The axes `LOADS`, `PERSISTENT` and `SPLIT_K` choose: operands come by pointers, in vectors as
wide as the contract allows, or by the copy engine (TMA); a program has one tile, or a
multiprocessor walks over many, loading ahead of the next; the sum over K is one program's,
or of several, of which the last adds the parts up in a fixed order (split-K).

Shapes: A is (M, K) or (batch, M, K), B (K, N) or (batch, K, N), C (M, N) or (batch, M, N).
Dtypes: fp16, bf16, fp32 (multiplied as tf32), fp8 (e4m3; C is fp16), int8 (C is int32).
Sums are in fp32, of int8 in int32; the bias and the activation come before rounding.
Layout: any strides. Large operands are copied where rows do not lie at multiples of 16 bytes,
which would be loaded element by element, and fp32 and 8 bits where they are not dense along K,
since tensor cores turn 16 bits alone round.
Source: Triton's tutorials 03 and 09 (order of tiles, persistence); the split sum after
"Efficient GEMM in CUDA", CUTLASS documentation, NVIDIA.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.dtypes import torch_dtype
from asmtune.core.keys.buckets import pow2
from asmtune.kernels._common import by_name, gluon_in_place, problems, tuners
from asmtune.kernels._gemm import (
    DEFAULT,
    finish_tile,
    known,
    operand_descriptors,
    space,
    summed,
    tile_origin,
)
from asmtune.kernels._gemm_host import (
    DTYPES,
    Product,
    activate,
    as_tf32,
    by_cublas,
    by_gluon,
    grid,
    launch,
    product,
    result_dtype,
)
from asmtune.kernels._split import gathered
from asmtune.runtime.replay_calls import replay_calls

__all__ = ["DEFAULT", "DTYPES", "kernel", "matmul", "space"]


@triton.jit
def kernel(
    a_ptr,
    b_ptr,
    bias_ptr,
    c_ptr,
    sums_ptr,
    count_ptr,
    batch,  # noqa: ARG001 (of the grid and the space, as SMS and SIZE are)
    M,
    N,
    K,
    stride_az,
    stride_am,
    stride_ak,
    stride_bz,
    stride_bk,
    stride_bn,
    LAYOUT: tl.constexpr,
    MULTIPLE: tl.constexpr,
    MULTIPLE_STRIDES: tl.constexpr,
    MULTIPLE_C: tl.constexpr,
    ACTIVATION: tl.constexpr,
    SMS: tl.constexpr,  # noqa: ARG001
    SIZE: tl.constexpr,  # noqa: ARG001
    LOADS: tl.constexpr,
    PERSISTENT: tl.constexpr,
    SPLIT_K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """Compute BLOCK_M x BLOCK_N tiles of C, of the product that the second grid axis names."""
    z = tl.program_id(1).to(tl.int64)
    a_ptr += z * known(a_ptr, stride_az, MULTIPLE_STRIDES)
    b_ptr += z * known(b_ptr, stride_bz, MULTIPLE_STRIDES)
    c_ptr += z * M * known(c_ptr, N, MULTIPLE_C)
    operands = (a_ptr, stride_am, stride_ak, b_ptr, stride_bk, stride_bn)
    sizes, out = (M, N, K), (c_ptr, N, bias_ptr)
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    contract: tl.constexpr = (MULTIPLE, MULTIPLE_STRIDES)
    block: tl.constexpr = (BLOCK_M, BLOCK_N, BLOCK_K)
    if LOADS == "descriptors":
        source = operand_descriptors(operands, sizes, LAYOUT, block)
    else:
        source = operands
    first = tl.program_id(0)
    if PERSISTENT:
        # Flattened, so that the first blocks of the next tile are loaded during this one's end.
        for tile in tl.range(first, tiles, tl.num_programs(0), flatten=True):
            origin = tile_origin(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
            acc = summed(source, sizes, origin, 0, 1, LOADS, LAYOUT, contract, block)
            finish_tile(acc, out, sizes, origin, ACTIVATION, MULTIPLE_C)
    else:
        tile, part = first // SPLIT_K, first % SPLIT_K
        origin = tile_origin(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        acc = summed(source, sizes, origin, part, SPLIT_K, LOADS, LAYOUT, contract, block)
        complete = True
        if SPLIT_K > 1:
            acc, complete = gathered(acc, sums_ptr, count_ptr, z * tiles + tile, part, SPLIT_K)
        if complete:
            finish_tile(acc, out, sizes, origin, ACTIVATION, MULTIPLE_C)


OUTPUTS = ("c_ptr",)

OPTIONAL = {"batch": 1}

_EXTENTS = (
    (4096, 4096, 4096),
    (512, 512, 512),
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (16, 4096, 4096),
    (64, 28672, 8192),
    (4096, 4096, 512),
    (1024, 16384, 1024),
    (8192, 1024, 8192),
    (384, 1536, 6144),
    (3072, 768, 2304),
    (128, 128, 16384),
    (1000, 1000, 1000),
    (200, 5000, 3000),
)
MAIN_SHAPES = tuple({"batch": 1, "M": M, "N": N, "K": K} for M, N, K in _EXTENTS)
"""Large and small, wide and high, few rows, a long sum, and extents not divisible by 16."""

SHAPES = (
    *MAIN_SHAPES,
    {"batch": 1, "M": 256, "N": 512, "K": 256},
    {"batch": 32, "M": 512, "N": 512, "K": 128},
    {"batch": 1, "M": 2001, "N": 1999, "K": 2003},
)


def inputs(shape: Mapping[str, int], dtype: str, device: str) -> dict[str, Any]:
    """Make random arguments of `matmul`.

    B lies as (N, K) in memory where `shape` has `transposed`, as weights of layers do, and in 8
    bits, as vendors want it.
    """
    batch, M, N, K = shape["batch"], shape["M"], shape["N"], shape["K"]
    a = random_matrices((batch, M, K), dtype, device)
    if shape.get("transposed") or dtype in ("fp8e4nv", "i8"):
        b = random_matrices((batch, N, K), dtype, device).mT
    else:
        b = random_matrices((batch, K, N), dtype, device)
    return {"a": a[0], "b": b[0]} if batch == 1 else {"a": a, "b": b}


def random_matrices(extents: tuple[int, ...], dtype: str, device: str) -> torch.Tensor:
    """Draw normal values, or integers from -8 to 7 for int8."""
    if dtype == "i8":
        return torch.randint(-8, 8, extents, device=device, dtype=torch.int8)
    return torch.randn(extents, device=device).to(torch_dtype(dtype))


def baseline(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None, activation: str = "none"
) -> torch.Tensor:
    """Compute the result in PyTorch, which multiplies neither fp8 nor int8 like this."""
    kind = result_dtype(a.dtype)
    c = a @ b if kind == a.dtype else (a.double() @ b.double()).to(kind)
    return activate(c if bias is None else c + bias, activation)


def reference(arguments: Mapping[str, Any]) -> torch.Tensor:
    """Compute C in float64 from a problem's arguments; exact for int8."""
    c = arguments["a_ptr"].double() @ arguments["b_ptr"].double()
    bias = arguments["bias_ptr"]
    return activate(c if bias is None else c + bias.double(), arguments["ACTIVATION"])


def _cublas(a: Any, b: Any, bias: Any = None, activation: str = "none", **_: bool) -> torch.Tensor:
    """Compute `matmul` by cuBLAS."""
    if a.element_size() == 2 and bias is None and activation == "none":
        return torch.matmul(a, b)  # what follows takes the host 2 us
    if a.element_size() > 1:
        with as_tf32(a.dtype):
            c = a @ b
        return activate(c if bias is None else c + bias, activation)
    operands = Product(a[None], b[None], bias, activation)
    by_cublas(operands.a, operands.b, bias, c := operands.result(), activation)
    return c[0]


def _gluon(a: Any, b: Any, bias: Any = None, activation: str = "none", **_: bool) -> torch.Tensor:
    """Compute `matmul` by the Gluon kernel for Hopper."""
    return _by_hopper(a, b, bias, activation)


@replay_calls
def _by_hopper(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, activation: str
) -> torch.Tensor:
    c = by_gluon(product("matmul", a, b, bias, activation))
    return c if a.ndim == 3 or b.ndim == 3 else c[0]


@replay_calls(alternatives={"cublas": _cublas, "gluon": _gluon})
def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str = "none",
    *,
    vendor: bool = True,
    gluon: bool = True,
) -> torch.Tensor:
    """Compute activation(A @ B + bias) by the tuned kernel.

    Args:
        a: (M, K) or (batch, M, K), of a dtype of DTYPES, on a GPU, any strides.
        b: (K, N) or (batch, K, N), of the same dtype, any strides; a matrix serves a whole batch.
        bias: (N,), of C's dtype; none for int8.
        activation: "none", "relu", "silu" or "gelu" (by the error function); "none" for int8.
        vendor: call cuBLAS where tuning has found it faster, and while it has not.
        gluon: on Hopper call the Gluon kernel where tuning has found it faster.

    Returns:
        (M, N), or (batch, M, N) where either is a batch: of the inputs' dtype; fp16 for fp8,
        int32 for int8.

    Raises:
        ValueError: shapes, dtypes or devices do not fit, a gradient is asked for, or K is 0.
    """
    operands = product("matmul", a, b, bias, activation, vendor=vendor)
    c = launch(
        (_alone, _beside_gluon, _beside_vendor, _tuned), operands, grid, vendor=vendor, gluon=gluon
    )
    return c if a.ndim == 3 or b.ndim == 3 else c[0]


def _arguments(a: torch.Tensor, b: torch.Tensor) -> dict[str, Any]:
    """Give the arguments of a random problem's launch by name."""
    operands = product("matmul", a, b, None, "none", vendor=True)  # as `matmul` does by default
    return operands.arguments(operands.result())


def _made(given: dict[str, Any]) -> None:
    """Launch cuBLAS with the arguments of this kernel by name."""
    operands = (given[f"{name}_ptr"] for name in ("a", "b", "bias", "c"))
    by_cublas(*operands, given["ACTIVATION"])


KNOWN = ("MULTIPLE_STRIDES", "SMS", "SIZE")
"""Arguments that the space's constraints name besides a shape's sizes."""

problem = problems(kernel, "matmul", inputs, _arguments, grid, KNOWN)
_launch_gluon = gluon_in_place(kernel, "_hopper_gemm")
_alone, _beside_gluon, _beside_vendor, _tuned = tuners(
    kernel,
    vendor={"cublas": by_name(kernel, _made)},
    gluon={"gluon": _launch_gluon},
    space=space,
    key=("batch", pow2("M"), "N", "K", "LAYOUT", "MULTIPLE", "MULTIPLE_STRIDES", "ACTIVATION"),
)
