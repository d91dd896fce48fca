"""Checks of products of FP8 with scales, extents of groups, and what the Gluon kernel takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton

from asmtune.kernels._common import check_plain, is_expanded, is_hopper
from asmtune.kernels._fp8 import NAMES

BLOCK = 128
"""Extent of groups wherever it gives as many as there are."""

EXTENTS = {"GROUP_A": (0, 1, BLOCK), "GROUP_B": (0, 1, BLOCK), "GROUP_K": (0, BLOCK)}
"""Rows of A, columns of B and elements of K that share a scale in the Gluon kernel, 0 for all."""


def extent_of_group(name: str, extent: int, count: int) -> int:
    """Give the extent of groups of an axis by their number, 0 for the whole axis.

    Raises:
        ValueError: they do not divide the axis; the message begins with `name`.
    """
    if count == 1:
        return 0
    if count == triton.cdiv(extent, BLOCK):
        return BLOCK
    if count < 1 or extent % count:
        raise ValueError(
            f"{name} has {count} groups of an axis of {extent}; it must have "
            f"{triton.cdiv(extent, BLOCK)}, of {BLOCK} each, or a number that divides {extent}"
        )
    return extent // count


def check_kinds(
    what: str,
    tensors: Mapping[str, torch.Tensor],
    kinds: Mapping[str, Mapping[torch.dtype, str]],
) -> None:
    """Refuse tensors that are not on the first one's device, or of no dtype of their own.

    Args:
        what: the public function's name.
        tensors: arguments by name.
        kinds: names of the dtypes that each may have.
    """
    for name, tensor in tensors.items():
        check_plain(what, name, tensor)
    device = next(iter(tensors.values())).device
    for name, tensor in tensors.items():
        if tensor.dtype not in kinds[name] or tensor.device != device:
            raise ValueError(
                f"{what}: {name} is {tensor.dtype} on {tensor.device}; it must be one of "
                f"{', '.join(kinds[name].values())} on {device}"
            )


def check_operands(
    operands: Mapping[str, torch.Tensor],
    scales: Mapping[str, torch.Tensor],
    out_dtype: torch.dtype,
    bias: torch.Tensor | None,
) -> None:
    """Refuse shapes, dtypes and devices that do not fit."""
    for name, operand in operands.items():
        check_plain("scaled_matmul", name, operand)
    a, b = operands["a"], operands["b"]
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0] or not a.shape[1]:
        raise ValueError(
            f"scaled_matmul: a is {tuple(a.shape)}, b is {tuple(b.shape)}; "
            "they must be (M, K) and (K, N), K 1 or more"
        )
    fp32 = {torch.float32: "fp32"}
    kinds = dict.fromkeys(operands, NAMES) | dict.fromkeys(scales, fp32)
    given = {**operands, **scales}
    if bias is not None:
        kinds, given = {**kinds, "bias": {out_dtype: str(out_dtype)}}, {**given, "bias": bias}
    check_kinds("scaled_matmul", given, kinds)
    for name, scale in scales.items():
        if scale.numel() != 1 and scale.ndim != 2:
            raise ValueError(
                f"scaled_matmul: {name} is {tuple(scale.shape)}; it must be one number, or 2-D"
            )
    if bias is not None and bias.shape != b.shape[1:]:
        raise ValueError(
            f"scaled_matmul: bias is {tuple(bias.shape)}; it must be {tuple(b.shape[1:])}"
        )
    if out_dtype not in (torch.bfloat16, torch.float16, torch.float32):
        raise ValueError(
            f"scaled_matmul: out_dtype is {out_dtype}; it must be bfloat16, float16 or float32"
        )


def fits_hopper(arguments: Mapping[str, Any]) -> bool:
    """Return whether the Gluon kernel for Hopper takes the operands of a launch."""
    a, b = arguments["a_ptr"], arguments["b_ptr"]
    return (
        arguments["LAYOUT"] == "kk"
        and arguments["MULTIPLE_STRIDES"] == arguments["MULTIPLE_C"] == 16
        and all(arguments[name] in extents for name, extents in EXTENTS.items())
        and not (is_expanded(a) or is_expanded(b))
        and is_hopper(a.device)
    )
