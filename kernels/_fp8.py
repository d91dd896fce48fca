"""Formats of FP8: their limits, conversion with saturation, and views of tensors as bytes.

Kernels take FP8 tensors as bytes, since a device without FP8 units has no type for them. Bytes
are the same on every device: such a device rounds by integer arithmetic.
Source: Micikevicius et al., FP8 formats for deep learning, arXiv:2209.05433; OCP 8-bit floating
point specification (OFP8).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

FORMATS = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
"""PyTorch's dtype of each format."""

LIMITS = {name: torch.finfo(kind).max for name, kind in FORMATS.items()}
"""Largest finite value of each format: 448 and 57344."""

NAMES = {kind: name for name, kind in FORMATS.items()}

MOST_E4M3: tl.constexpr = tl.constexpr(LIMITS["e4m3"])
MOST_E5M2: tl.constexpr = tl.constexpr(LIMITS["e5m2"])


class _Asked:
    """A question about the target that is compiled for; no for Triton's interpreter.

    Triton calls it while it compiles, with the target's options. `target_info` of Triton's own
    asks the driver, whose device need not be that of the target.
    """

    __triton_builtin__ = True

    def __init__(self, name: str, answer: Callable[[Any], bool]) -> None:
        self._name, self._answer = name, answer

    def __call__(self, _semantic: Any = None) -> tl.constexpr:
        options = None if _semantic is None else _semantic.builder.options
        return tl.constexpr(options is not None and self._answer(options))

    def __repr__(self) -> str:
        return self._name  # of the key of compiled artifacts, as all that a kernel names


has_fp8 = _Asked("has_fp8", lambda options: "fp8e4nv" in options.supported_fp8_dtypes)
# For sm_89 Triton 3.6 cuts digits off to fp16 first, so that ties are seen where there are none.
rounds_to_fp8 = _Asked("rounds_to_fp8", lambda options: _capability(options.arch) >= 90)


def _capability(arch: Any) -> int:
    """Return the number of a compute capability, 90 for sm90; 0 for other makers' devices."""
    found = re.fullmatch(r"sm_?(\d+)a?", str(arch))
    return int(found[1]) if found else 0


@triton.jit
def typed(ptr, FORMAT: tl.constexpr):
    """Return a pointer to bytes as one to FP8 where the device has the type."""
    if has_fp8():
        kind: tl.constexpr = tl.float8e4nv if FORMAT == "e4m3" else tl.float8e5
        ptr = ptr.to(tl.pointer_type(kind), bitcast=True)
    return ptr


@triton.jit
def fp8_bits(x, FORMAT: tl.constexpr):
    """Return the bytes of fp32 values, rounded to the nearest, ties to even.

    What is beyond the largest value becomes it, infinities too; NaN becomes 0x7f.
    """
    if rounds_to_fp8():
        kind: tl.constexpr = tl.float8e4nv if FORMAT == "e4m3" else tl.float8e5
        return x.to(kind).to(tl.uint8, bitcast=True)
    DROPPED: tl.constexpr = 20 if FORMAT == "e4m3" else 21  # of 23 bits of the fraction
    BIAS: tl.constexpr = 7 if FORMAT == "e4m3" else 15
    most = MOST_E4M3 if FORMAT == "e4m3" else MOST_E5M2
    # A sum with this number has the spacing of subnormal values, so that it rounds to one.
    magic = 16384.0 if FORMAT == "e4m3" else 128.0
    bits = x.to(tl.int32, bitcast=True)
    size = bits & 0x7FFFFFFF
    is_nan = size > 0x7F800000
    clamped = tl.minimum(size.to(tl.float32, bitcast=True), most)
    size = clamped.to(tl.int32, bitcast=True)
    odd = (size >> DROPPED) & 1
    normal = ((size + ((1 << (DROPPED - 1)) - 1) + odd) >> DROPPED) - (
        (127 - BIAS) << (23 - DROPPED)
    )
    small = (clamped + magic).to(tl.int32, bitcast=True) & 0xFF
    is_small = size < ((128 - BIAS) << 23)
    code = tl.where(is_small, small, normal) | ((bits >> 24) & 0x80)
    return tl.where(is_nan, 0x7F, code).to(tl.uint8)


@triton.jit
def halves(bits, FORMAT: tl.constexpr):
    """Return the fp16 values of bytes; both formats are within it."""
    word = bits.to(tl.uint16)
    if FORMAT == "e5m2":
        return (word << 8).to(tl.float16, bitcast=True)
    # The exponent's bias is 8 less than that of fp16.
    value = (((word & 0x80) << 8) | ((word & 0x7F) << 7)).to(tl.float16, bitcast=True) * 256.0
    return tl.where((word & 0x7F) == 0x7F, float("nan"), value).to(tl.float16)


@triton.jit
def scale_of(amax, FORMAT: tl.constexpr):
    """Return the scale at which amax is the largest value: 1 for zeros, and no subnormal number."""
    most = MOST_E4M3 if FORMAT == "e4m3" else MOST_E5M2
    least = 1.1754943508222875e-38
    return tl.where(amax > 0, tl.maximum(tl.math.div_rn(amax, amax * 0 + most), least), 1.0)
