"""Product of FP8 matrices with scales: C = (A * scale_a) (B * scale_b) + bias.

Scales are per tensor, per row of A and column of B, or per group: of 1 x 128 of A and 128 x 128
of B as DeepSeek has them, and others. The sum over each group of K is scaled, then added in
fp32. Tiles, variants and space are those of `matmul`. Devices without tensor cores of FP8
multiply in fp16, which has all values of both formats.

Shapes: A is (M, K), B (K, N), C (M, N), scale_a (row groups, K groups), scale_b (K groups,
column groups), or one number each. The extent of a group follows from the number of groups: it is
128, with a short last one, where that gives so many, else the axis divided evenly.
Dtypes: e4m3 and e5m2, in any pair; C is bf16, fp16 or fp32; scales are fp32.
Layout: any strides; that of B is by column where it is not to be copied. Large operands are
copied as by `matmul`.
Source: as of matmul; block scales after DeepSeek-V3, arXiv:2412.19437, 3.3.2, and vLLM's
`w8a8_block_fp8_matmul`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.dtypes import torch_dtype
from asmtune.core.keys.buckets import pow2
from asmtune.core.space.space import Space
from asmtune.kernels import _gemm
from asmtune.kernels._common import (
    are_apart,
    beside,
    by_name,
    forward_only,
    gluon_in_place,
    problems,
    tuners,
)
from asmtune.kernels._fp8 import FORMATS as KINDS
from asmtune.kernels._fp8 import NAMES, typed
from asmtune.kernels._gemm import DEFAULT, finish_tile, operand_descriptors, tile_origin
from asmtune.kernels._gemm_host import grid, placed
from asmtune.kernels._scaled import BLOCK, check_operands, extent_of_group, fits_hopper, scaled_sum
from asmtune.kernels._split import gathered
from asmtune.runtime.replay_calls import replay_calls
from asmtune.triton_api.launching import allocating

__all__ = ["DEFAULT", "kernel", "scaled_matmul", "space"]


@triton.jit
def kernel(
    a_ptr,
    b_ptr,
    scale_a_ptr,
    scale_b_ptr,
    bias_ptr,
    c_ptr,
    sums_ptr,
    count_ptr,
    batch,  # noqa: ARG001 (of the grid and the space, as SMS and SIZE are)
    M,
    N,
    K,
    stride_az,  # noqa: ARG001
    stride_am,
    stride_ak,
    stride_bz,  # noqa: ARG001
    stride_bk,
    stride_bn,
    stride_sam,
    stride_sak,
    stride_sbk,
    stride_sbn,
    LAYOUT: tl.constexpr,
    MULTIPLE: tl.constexpr,
    MULTIPLE_STRIDES: tl.constexpr,
    MULTIPLE_C: tl.constexpr,
    GROUP_A: tl.constexpr,
    GROUP_B: tl.constexpr,
    GROUP_K: tl.constexpr,
    FORMAT_A: tl.constexpr,
    FORMAT_B: tl.constexpr,
    FAST: tl.constexpr,
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
    """Compute BLOCK_M x BLOCK_N tiles of C; A and B are bytes."""
    a_ptr, b_ptr = typed(a_ptr, FORMAT_A), typed(b_ptr, FORMAT_B)
    operands = (a_ptr, stride_am, stride_ak, b_ptr, stride_bk, stride_bn)
    scales = ((scale_a_ptr, stride_sam, stride_sak), (scale_b_ptr, stride_sbn, stride_sbk))
    sizes, out = (M, N, K), (c_ptr, N, bias_ptr)
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    contract: tl.constexpr = (MULTIPLE, MULTIPLE_STRIDES)
    block: tl.constexpr = (BLOCK_M, BLOCK_N, BLOCK_K)
    groups: tl.constexpr = (GROUP_A, GROUP_B, GROUP_K)
    formats: tl.constexpr = (FORMAT_A, FORMAT_B)
    if LOADS == "descriptors":
        source = operand_descriptors(operands, sizes, LAYOUT, block)
    else:
        source = operands
    first = tl.program_id(0)
    if PERSISTENT:
        for tile in tl.range(first, tiles, tl.num_programs(0), flatten=True):
            origin = tile_origin(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
            acc = scaled_sum(
                *(source, scales, sizes, origin, (0, 1), LOADS, LAYOUT),
                *(contract, block, groups, formats, FAST),
            )
            finish_tile(acc, out, sizes, origin, "none", MULTIPLE_C)
    else:
        tile, part = first // SPLIT_K, first % SPLIT_K
        origin = tile_origin(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        acc = scaled_sum(
            *(source, scales, sizes, origin, (part, SPLIT_K), LOADS, LAYOUT),
            *(contract, block, groups, formats, FAST),
        )
        complete = True
        if SPLIT_K > 1:
            acc, complete = gathered(acc, sums_ptr, count_ptr, tile, part, SPLIT_K)
        if complete:
            finish_tile(acc, out, sizes, origin, "none", MULTIPLE_C)


OUTPUTS = ("c_ptr",)

DTYPES = ("fp8e4nv", "fp8e5")
"""Dtypes of A; B is e4m3."""

GRANULARITIES = {"tensor": (0, 0, 0), "row": (1, 1, 0), "block": (1, BLOCK, BLOCK)}
"""Rows of A, columns of B and elements of K that share a scale, 0 for all."""

SHAPES = ({"M": 4096, "N": 4096, "K": 4096, "GROUP_A": 1, "GROUP_B": BLOCK, "GROUP_K": BLOCK},)


def space() -> Space:
    """Build the space of `matmul`, of blocks of K that lie in a group."""
    return _gemm.space(_is_wide).where("a block of K lies in a group", _lies_in_a_group)


def _is_wide(BLOCK_M: int, BLOCK_N: int, BLOCK_K: int, SIZE: int, N: int, GROUP_K: int) -> bool:
    # No wide block lies in a group of 64, and the default's tile is too wide for few columns.
    columns, width = triton.next_power_of_2(N), DEFAULT.kwargs["BLOCK_N"]
    is_short = columns < width and 0 < GROUP_K <= BLOCK // 2
    return is_short or _gemm.is_wide(BLOCK_M, BLOCK_N, BLOCK_K, SIZE)


def _lies_in_a_group(LOADS: str, BLOCK_K: int, GROUP_K: int) -> bool:
    if GROUP_K % BLOCK_K == 0:
        return True
    # By pointers the rest of a block is masked.
    return LOADS == "pointers" and max(32, 2 * GROUP_K - 1) >= BLOCK_K


def inputs(shape: Mapping[str, int], dtype: str, device: str) -> dict[str, Any]:
    """Make random arguments of `scaled_matmul`, laid out as `torch._scaled_mm` wants them."""
    M, N, K = shape["M"], shape["N"], shape["K"]
    a = torch.randn(M, K, device=device).to(torch_dtype(dtype))
    b = torch.randn(N, K, device=device).to(torch.float8_e4m3fn).mT
    down, across, along = (
        triton.cdiv(extent, shape[name]) if shape[name] else 1
        for name, extent in (("GROUP_A", M), ("GROUP_B", N), ("GROUP_K", K))
    )
    scale_a = torch.rand(along, down, device=device).add(0.5).mT
    scale_a = scale_a if along > 1 else scale_a.reshape(-1).view(down, 1)
    padded = triton.cdiv(along, 4) * 4 if along > 1 else 1
    scale_b = torch.rand(across, padded, device=device).add(0.5)[:, :along].mT
    return {"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b, "fast_accum": not along > 1}


def _spread(scale: torch.Tensor, rows: int, cols: int) -> torch.Tensor:
    """Repeat scales for each element of a matrix."""
    scale = scale.reshape(1, 1) if scale.numel() == 1 else scale
    for axis, extent in enumerate((rows, cols)):
        group = extent_of_group("scaled_matmul: scales", extent, scale.shape[axis]) or extent
        scale = scale.repeat_interleave(group, axis).narrow(axis, 0, extent)
    return scale


def baseline(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    out_dtype: torch.dtype = torch.bfloat16,
    bias: torch.Tensor | None = None,
    fast_accum: bool = False,  # noqa: ARG001
) -> torch.Tensor:
    """Compute the result in PyTorch: scale, then multiply in C's dtype, or in float64 as A is."""
    kind = torch.float64 if a.dtype == torch.float64 else out_dtype
    one, other = (
        (x.to(scale.dtype) * _spread(scale, *x.shape)).to(kind)
        for x, scale in ((a, scale_a), (b, scale_b))
    )
    c = one @ other
    return c if bias is None else c + bias


def reference(arguments: Mapping[str, Any]) -> torch.Tensor:
    """Compute C in float64 from a problem's arguments."""
    a, b, scale_a, scale_b, bias = operands_of(arguments)
    return baseline(a.double(), b.double(), scale_a.double(), scale_b.double(), bias=bias)[None]


def operands_of(given: Mapping[str, Any]) -> tuple[Any, ...]:
    """Give A, B, their scales and the bias, as the public function takes them, of a launch."""
    a = given["a_ptr"][0].view(KINDS[given["FORMAT_A"]])
    b = given["b_ptr"][0].view(KINDS[given["FORMAT_B"]])
    return a, b, given["scale_a_ptr"], given["scale_b_ptr"], given["bias_ptr"]


def by_torch(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    out_dtype: torch.dtype = torch.bfloat16,
    bias: torch.Tensor | None = None,
    fast_accum: bool = False,
    **_: bool,
) -> torch.Tensor:
    """Compute `scaled_matmul` by `torch._scaled_mm`."""
    how = {"bias": bias, "out_dtype": out_dtype, "use_fast_accum": fast_accum}
    return torch._scaled_mm(a, b, scale_a, scale_b, **how)


def _gluon(*given: Any, vendor: bool = True, gluon: bool = True, **named: Any) -> torch.Tensor:  # noqa: ARG001
    """Compute `scaled_matmul` by the Gluon kernel for Hopper."""
    from asmtune.kernels import _hopper_scaled

    arguments = _arguments(*given, **named)
    _hopper_scaled.in_place_of_plain(arguments)
    c: torch.Tensor = arguments["c_ptr"]
    return c[0]


def _made(given: dict[str, Any]) -> None:
    """Launch `torch._scaled_mm` with the arguments of this kernel by name."""
    a, b, scale_a, scale_b, bias = operands_of(given)
    c = given["c_ptr"][0]
    how = {"bias": bias, "out_dtype": c.dtype, "use_fast_accum": given["FAST"]}
    torch._scaled_mm(a, b, scale_a, scale_b, **how, out=c)


def has_vendor(arguments: Mapping[str, Any]) -> bool:
    """Return whether `torch._scaled_mm` takes a launch's operands, on this device, as they lie."""
    a, b, scale_a, scale_b, bias = operands_of(arguments)
    (M, K), N, out = a.shape, b.shape[1], arguments["c_ptr"].dtype
    capability = _capability(a.device)
    if capability < (8, 9) or a.dtype == b.dtype == torch.float8_e5m2:
        return False
    if K % 16 or N % 16 or not (are_apart(a) and are_apart(b.mT)):
        return False
    if scale_a.numel() == scale_b.numel() == 1:
        return bias is None or out != torch.float32
    if capability[0] != 9 or out != torch.bfloat16:
        return False
    shapes = tuple(scale_a.shape), tuple(scale_b.shape)
    if shapes == ((M, 1), (1, N)):
        return scale_a.is_contiguous() and scale_b.is_contiguous()
    along, across = triton.cdiv(K, BLOCK), triton.cdiv(N, BLOCK)
    lies = scale_a.stride() == (1, M), scale_b.stride() == (1, triton.cdiv(along, 4) * 4)
    return shapes == ((M, along), (along, across)) and all(lies) and bias is None


def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else (0, 0)


@replay_calls(alternatives={"torch": by_torch, "gluon": _gluon})
def scaled_matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    out_dtype: torch.dtype = torch.bfloat16,
    bias: torch.Tensor | None = None,
    fast_accum: bool = False,
    *,
    vendor: bool = True,
    gluon: bool = True,
) -> torch.Tensor:
    """Compute (a * scale_a) @ (b * scale_b) + bias by the tuned kernel.

    Args:
        a: (M, K), e4m3 or e5m2, on a GPU, any strides.
        b: (K, N), of the same kind.
        scale_a: fp32, one number, or (row groups, K groups): 1 or M of rows, or of 128 each.
        scale_b: fp32, one number, or (K groups, column groups); K groups as scale_a, or one.
        out_dtype: bf16, fp16 or fp32.
        bias: (N,), of out_dtype.
        fast_accum: leave sums over K to Hopper's tensor cores, which keep some 14 bits of
            them; has no effect on groups along K, or on other devices.
        vendor: call `torch._scaled_mm` where it takes the operands and tuning has found it faster,
            and while it has not.
        gluon: on Hopper call the Gluon kernel where tuning has found it faster.

    Returns:
        (M, N), of out_dtype.

    Raises:
        ValueError: shapes, dtypes, devices or groups do not fit, a gradient is asked for, or K
            is 0.
    """
    forward_only("scaled_matmul", a, b, scale_a, scale_b, *(() if bias is None else (bias,)))
    arguments = _arguments(a, b, scale_a, scale_b, out_dtype, bias, fast_accum)
    c: torch.Tensor = arguments["c_ptr"]
    if c.numel():
        choices = (_alone, _beside_gluon, _beside_vendor, _tuned)
        wanted = vendor and has_vendor(arguments), gluon and fits_hopper(arguments)
        with allocating():
            beside(choices, *wanted)[grid](**arguments)
    return c[0]


def _arguments(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    out_dtype: torch.dtype = torch.bfloat16,
    bias: torch.Tensor | None = None,
    fast_accum: bool = False,
) -> dict[str, Any]:
    """Check the arguments, and give the launch's by name, with room for the result."""
    check_operands({"a": a, "b": b}, {"scale_a": scale_a, "scale_b": scale_b}, out_dtype, bias)
    (M, K), N = a.shape, b.shape[1]
    scale_a, scale_b = (s.reshape(1, 1) if s.numel() == 1 else s for s in (scale_a, scale_b))
    counts = scale_a.shape[1], scale_b.shape[0]
    if counts[0] != counts[1] and 1 not in counts:
        raise ValueError(
            f"scaled_matmul: scale_a has {counts[0]} groups of K and scale_b {counts[1]}; "
            "they must have as many, or one of them 1"
        )
    along = max(counts)
    groups = {
        "GROUP_A": extent_of_group("scaled_matmul: scale_a", M, scale_a.shape[0]),
        "GROUP_B": extent_of_group("scaled_matmul: scale_b", N, scale_b.shape[1]),
        "GROUP_K": extent_of_group("scaled_matmul: the scales", K, along),
    }
    operands = placed(
        a.view(torch.uint8), b.view(torch.uint8), None if bias is None else bias.contiguous()
    )
    arguments = operands.arguments(torch.empty((1, M, N), dtype=out_dtype, device=a.device))
    arguments.pop("ACTIVATION")
    # A matrix with one group of K serves all of them.
    strides = {"stride_sam": scale_a.stride(0), "stride_sak": scale_a.stride(1) * (counts[0] > 1)}
    strides |= {"stride_sbk": scale_b.stride(0) * (counts[1] > 1), "stride_sbn": scale_b.stride(1)}
    formats = {"FORMAT_A": NAMES[a.dtype], "FORMAT_B": NAMES[b.dtype], "FAST": fast_accum}
    scales = {"scale_a_ptr": scale_a, "scale_b_ptr": scale_b}
    return {**arguments, **scales, **strides, **groups, **formats}


_KNOWN = ("batch", "MULTIPLE_STRIDES", "SMS", "SIZE", "GROUP_A", "GROUP_B", "GROUP_K")
problem = problems(kernel, "scaled_matmul", inputs, _arguments, grid, _KNOWN)
_launch_torch, _launch_gluon = by_name(kernel, _made), gluon_in_place(kernel, "_hopper_scaled")
_alone, _beside_gluon, _beside_vendor, _tuned = tuners(
    kernel,
    vendor={"torch": _launch_torch},
    gluon={"gluon": _launch_gluon},
    space=space,
    key=(
        *(pow2("M"), "N", "K", "LAYOUT", "MULTIPLE", "MULTIPLE_STRIDES"),
        *("GROUP_A", "GROUP_B", "GROUP_K", "FORMAT_A", "FORMAT_B", "FAST"),
    ),
)
