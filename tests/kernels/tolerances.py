"""How far a result may lie from the exact one: one table, by the dtype of the result.

An error is held against `relative` of the exact value, plus `share` of the largest value
of its tensor (sums of many terms, some of which cancel), plus `least`. The fp32 figures are
some tens of its epsilon (1.2e-7), as sums of thousands of terms need; those of fp16 and
bf16 are 0.6 of their epsilon, which rounding once takes half of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import torch

from asmtune.core.dtypes import dtype_of


@dataclass(frozen=True)
class Tolerance:
    """Bounds of an error.

    Attributes:
        relative: of the exact value.
        share: of the largest finite exact value of the tensor.
        least: whatever the values are: where the dtype's normal numbers end.
    """

    relative: float
    share: float
    least: float


TOLERANCES: Final = {
    "fp32": Tolerance(4e-6, 8e-6, 1.2e-38),
    "fp16": Tolerance(5.9e-4, 8e-6, 6.0e-8),
    "bf16": Tolerance(4.7e-3, 8e-6, 1.2e-38),
    # Triton's interpreter cuts digits off where a GPU rounds, and loses subnormal numbers.
    "bf16 cut": Tolerance(8.0e-3, 8e-6, 3.0e-38),
    # fp32 in tensor cores: operands lose 13 of their 23 bits.
    "tf32": Tolerance(2e-3, 1e-3, 1.2e-38),
    # Hopper's tensor cores keep some 14 bits of a sum of fp8 products (DeepSeek-V3, 3.3.2) and cut
    # the rest off: at K = 4096, 128 steps of 32 terms lose 2**-14 of the running sum each on
    # average, 7.8e-3 in all. Seen on an H200: 1.1e-3 of the largest sum with one config, 3.1e-3
    # with another.
    "fp8 sums": Tolerance(2e-3, 8e-3, 6.0e-8),
    "bf16 fp8 sums": Tolerance(6e-3, 8e-3, 1.2e-38),
    # What enters the next step is rounded, some times over: see tests/kernels/recurrent.py.
    "fp16 recurrent": Tolerance(1e-3, 2e-3, 6.0e-8),
    "bf16 recurrent": Tolerance(8e-3, 1.6e-2, 3.0e-38),
    # Attention rounds weights to the operands' dtype, so that an error is of the largest sums.
    "fp16 weights": Tolerance(2e-3, 2e-3, 6.0e-8),
    "bf16 weights": Tolerance(1.6e-2, 1.6e-2, 1.2e-38),
    "tf32 weights": Tolerance(4e-3, 4e-3, 1.2e-38),
    "i32": Tolerance(0.0, 0.0, 0.0),
    "i8": Tolerance(0.0, 0.0, 0.0),
    "u8": Tolerance(0.0, 0.0, 0.0),
    # Bytes of FP8 are the same on all devices.
    "fp8e4nv": Tolerance(0.0, 0.0, 0.0),
    "fp8e5": Tolerance(0.0, 0.0, 0.0),
}


def excess(
    got: torch.Tensor, want: torch.Tensor, named: Mapping[str, str] = MappingProxyType({})
) -> float:
    """The largest error by what is allowed: up to 1 is right; inf for a wrong shape or NaN.

    Args:
        got: a result.
        want: the exact one; where it is beyond the result's dtype, that is to be infinite.
        named: rows of the table, by dtypes of results that have another than their own.
    """
    dtype = str(dtype_of(got))
    tolerance = TOLERANCES[named.get(dtype, dtype)]
    if got.shape != want.shape:
        return float("inf")
    exact, rounded = want.double(), want.to(got.dtype).double()
    found, finite = got.double(), rounded.isfinite()
    if not torch.equal(found[~finite].nan_to_num(nan=0.5), rounded[~finite].nan_to_num(nan=0.5)):
        return float("inf")
    exact, found = exact[finite], found[finite]
    if not exact.numel():
        return 0.0
    if not found.isfinite().all():
        return float("inf")
    error, size = (found - exact).abs(), exact.abs()
    allowed = tolerance.relative * size + tolerance.share * size.max() + tolerance.least
    # Exact results have no error to divide, be nothing allowed.
    return float(torch.where(error == 0, 0.0, error / allowed).max())
