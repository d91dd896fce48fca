"""Matrix product C = A B, one tile a program: the template for your own kernels.

A kernel module says seven things; copy this file and change each:

1. `kernel`: the `@triton.jit` function, undecorated otherwise.
2. `space()`: its configs. Axes are the constexprs to tune and Triton's options
   (`num_warps`, `num_stages`, `num_ctas`, `maxnreg`); constraints have names,
   take axes and dimensions by name, and are checked before anything compiles.
3. `SHAPES` and `DTYPES`: what it is tuned for; the first are the defaults.
4. `inputs(shape, dtype, device)`: random arguments of the public function.
   `device="meta"` makes tensors without memory, so that everything but timing
   works without a GPU.
5. `problem(shape, dtype, device)`: the arguments of one launch by parameter
   name, and its grid. `OUTPUTS` names those that the launch writes.
6. `baseline(...)`: what it computes, in plain PyTorch, with the arguments of the
   public function; `reference(arguments)`: the outputs in float64.
7. The public function, named as the module, which checks what it is given.

`tests/kernels/cases/NAME.py` says what it is checked on, and
`benchmarks/kernels/entries/` what it is timed against.

Then `asmtune prune-report path/to/yours.py --target H200 --shape M=4096,...`.
The function for PyTorch users is at the end: `tiled_matmul(a, b)`. `matmul` in matmul.py
is the one to call in earnest: it has more variants, and is as fast as the vendor's.

Shapes: A is (M, K), B is (K, N), C is (M, N).
Dtypes: fp16, bf16, fp8 (e4m3; C is fp16), fp32 (multiplied as tf32), int8 (C is int32).
Accumulates in fp32 (int32 for int8).
Layout: any strides.
Source: Triton's tutorial 03, with its order of programs: groups of rows, so that
neighbouring programs share tiles in L2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.core.dtypes import torch_dtype
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from asmtune.kernels._common import check_tensors, forward_only
from asmtune.runtime.decorator import asm_autotune


@triton.jit
def kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """Compute one BLOCK_M x BLOCK_N tile of C a program."""
    pid = tl.program_id(0)
    num_m, num_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group = GROUP_M * num_n
    first_m = (pid // group) * GROUP_M
    rows = min(num_m - first_m, GROUP_M)
    pid_m = first_m + (pid % group) % rows
    pid_n = (pid % group) // rows
    # The wrap by % keeps the loads in bounds without a mask along M and N.
    offs_m = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    offs_n = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    offs_k = tl.arange(0, BLOCK_K)
    a = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    accumulator: tl.constexpr = tl.int32 if a_ptr.dtype.element_ty.is_int() else tl.float32
    acc = tl.zeros((BLOCK_M, BLOCK_N), accumulator)
    for k in range(tl.cdiv(K, BLOCK_K)):
        left = K - k * BLOCK_K
        tile_a = tl.load(a, mask=offs_k[None, :] < left, other=0.0)
        tile_b = tl.load(b, mask=offs_k[:, None] < left, other=0.0)
        acc = tl.dot(tile_a, tile_b, acc, out_dtype=accumulator)
        a += BLOCK_K * stride_ak
        b += BLOCK_K * stride_bk
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c = c_ptr + stride_cm * offs_m[:, None] + stride_cn * offs_n[None, :]
    inside = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c, acc.to(c_ptr.dtype.element_ty), mask=inside)


OUTPUTS = ("c_ptr",)

DTYPES = ("fp16", "bf16", "fp32", "fp8e4nv", "i8")

SHAPES = (
    {"M": 4096, "N": 4096, "K": 4096},
    {"M": 512, "N": 512, "K": 512},
    {"M": 1024, "N": 16384, "K": 1024},
    {"M": 16, "N": 4096, "K": 4096},
    {"M": 1000, "N": 1000, "K": 1000},
)

DEFAULT = Config(
    {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 32, "GROUP_M": 8}, num_warps=4, num_stages=3
)
"""Runs on every target and dtype: 48 KiB of shared memory at most."""


_WIDEST = 128  # BLOCK_K of the space


def space() -> Space:
    """Build the space: tiles, group height, warps and stages."""
    axes = {
        "BLOCK_M": (16, 32, 64, 128, 256),
        "BLOCK_N": (32, 64, 128, 256),
        "BLOCK_K": (32, 64, _WIDEST),
        "GROUP_M": (8,),
        "num_warps": (2, 4, 8),
        "num_stages": (2, 3, 4, 5),
    }
    return Space(axes, default=DEFAULT).where(
        "a thread holds 4 to 256 accumulators",
        lambda BLOCK_M, BLOCK_N, num_warps: 4 <= BLOCK_M * BLOCK_N // (num_warps * 32) <= 256,
    )


def _grid(values: Mapping[str, Any]) -> tuple[int]:
    tiles_m = triton.cdiv(values["M"], values["BLOCK_M"])
    return (tiles_m * triton.cdiv(values["N"], values["BLOCK_N"]),)


def inputs(shape: Mapping[str, int], dtype: str, device: str) -> dict[str, Any]:
    """Make random arguments of `tiled_matmul` by name."""
    M, N, K = shape["M"], shape["N"], shape["K"]
    return {"a": _operand((M, K), dtype, device), "b": _operand((K, N), dtype, device)}


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch of one product of random matrices.

    Args:
        shape: M, N and K.
        dtype: dtype of A and B, one of DTYPES.
        device: "cuda", or "meta" for tensors without memory.
    """
    a, b = inputs(shape, dtype, device).values()
    c = torch.empty((shape["M"], shape["N"]), device=device, dtype=_result_dtype(a.dtype))
    return Problem(kernel, _arguments(a, b, c), _grid, shape, "tiled_matmul")


def baseline(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Compute the result in PyTorch, which multiplies neither fp8 nor int8 like this."""
    kind = _result_dtype(a.dtype)
    return a @ b if kind == a.dtype else (a.double() @ b.double()).to(kind)


def reference(arguments: Mapping[str, Any]) -> torch.Tensor:
    """Compute C in float64 from a problem's arguments; exact for int8."""
    return arguments["a_ptr"].double() @ arguments["b_ptr"].double()


def tiled_matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Compute A @ B by the tuned kernel.

    Args:
        a: (M, K), of a dtype of DTYPES, on a GPU, any strides.
        b: (K, N), of the same dtype, any strides.

    Returns:
        (M, N): of the inputs' dtype; fp16 for fp8, int32 for int8.

    Raises:
        ValueError: they are no matrices, their inner extents, dtypes or devices differ, the
            dtype is not in DTYPES, they are too large, or a gradient is asked for.
    """
    check_tensors("tiled_matmul", {"a": a, "b": b}, DTYPES)
    forward_only("tiled_matmul", a, b)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(
            f"tiled_matmul: a is {tuple(a.shape)}, b is {tuple(b.shape)}; "
            "they must be (M, K) and (K, N)"
        )
    _check_reach(a, b)
    c = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=_result_dtype(a.dtype))
    _tuned[_grid](**_arguments(a, b, c))
    return c


def _check_reach(a: torch.Tensor, b: torch.Tensor) -> None:
    """Refuse matrices whose offsets need more than the 32 bits that the kernel gives them."""
    (M, K), N = a.shape, b.shape[1]
    block = min(K, _WIDEST)
    reach = {"a": M * a.stride(0) + block * a.stride(1), "c": M * N}
    reach["b"] = block * b.stride(0) + N * b.stride(1)
    for name, elements in reach.items():
        if elements >= 1 << 31:
            raise ValueError(
                f"tiled_matmul: a tile of {name} lies up to {elements} elements from its first; it "
                f"must be fewer than {1 << 31}: divide the product"
            )


def _arguments(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> dict[str, Any]:
    (M, K), N = a.shape, b.shape[1]
    names = ("stride_am", "stride_ak", "stride_bk", "stride_bn", "stride_cm", "stride_cn")
    strides = dict(zip(names, (*a.stride(), *b.stride(), *c.stride()), strict=True))
    return {"a_ptr": a, "b_ptr": b, "c_ptr": c, "M": M, "N": N, "K": K, **strides}


def _operand(extents: tuple[int, int], dtype: str, device: str) -> torch.Tensor:
    if dtype == "i8":
        return torch.randint(-8, 8, extents, device=device, dtype=torch.int8)
    return torch.randn(extents, device=device).to(torch_dtype(dtype))


def _result_dtype(dtype: torch.dtype) -> torch.dtype:
    return {torch.float8_e4m3fn: torch.float16, torch.int8: torch.int32}.get(dtype, dtype)


_tuned = asm_autotune(space=space, key=["M", "N", "K"])(kernel)
