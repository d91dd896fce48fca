"""Tolerances: how far a result may lie from the exact one, by the dtype of the result.

An error is held against `relative` of the exact value, plus `share` of the largest value
of its tensor (sums of many terms, some of which cancel), plus `least`. The fp32 figures are
some tens of its epsilon (1.2e-7), as sums of thousands of terms need; those of fp16 and
bf16 are 0.6 of their epsilon, which rounding once takes half of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import torch

from asmtune.base.errors import InputError
from asmtune.base.text import did_you_mean
from asmtune.core.dtypes import TORCH_NAMES, dtype_name, dtype_of


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
    # fp32 in tensor cores: operands lose 13 of their 23 bits.
    "tf32": Tolerance(2e-3, 1e-3, 1.2e-38),
    # Hopper's tensor cores cut off a running sum after each step of 16 terms. An H200
    # lost 8.3e-6 of the largest sum at K = 18944, and 1.3e-5 at K = 28672: 4.6e-10 a term.
    "fp16 sums": Tolerance(5.9e-4, 2e-5, 6.0e-8),
    "bf16 sums": Tolerance(4.7e-3, 2e-5, 1.2e-38),
    # Hopper's tensor cores keep some 14 bits of a sum of fp8 products (DeepSeek-V3, 3.3.2) and cut
    # the rest off: at K = 4096, 128 steps of 32 terms lose 2**-14 of the running sum each on
    # average, 7.8e-3 in all. Seen on an H200: 1.1e-3 of the largest sum with one config, 3.1e-3
    # with another; on an H100 at K = 28672 above 8e-3.
    "fp8 sums": Tolerance(2e-3, 1.6e-2, 6.0e-8),
    "bf16 fp8 sums": Tolerance(6e-3, 1.6e-2, 1.2e-38),
    # What enters the next step is rounded, some times over.
    "fp16 recurrent": Tolerance(1e-3, 2e-3, 6.0e-8),
    "bf16 recurrent": Tolerance(8e-3, 1.6e-2, 3.0e-38),
    # Attention rounds weights to the operands' dtype, so that an error is of the largest sums.
    "fp16 weights": Tolerance(2e-3, 2e-3, 6.0e-8),
    # Gradients of weights are rounded to multiples of 6e-8 near fp16's end, and then summed: 1.1e-7
    # was seen in the gradient of queries, where dy is denormal.
    "fp16 weight gradients": Tolerance(2e-3, 2e-3, 2.4e-7),
    "bf16 weights": Tolerance(1.6e-2, 1.6e-2, 1.2e-38),
    "tf32 weights": Tolerance(4e-3, 4e-3, 1.2e-38),
    # Half of the distance between two numbers: 3 digits of e4m3, 2 of e5m2.
    **dict.fromkeys(("fp8e4nv", "fp8e4b8"), Tolerance(6.3e-2, 8e-6, 1.0e-3)),
    **dict.fromkeys(("fp8e5", "fp8e5b16"), Tolerance(1.26e-1, 8e-6, 8.0e-6)),
    # A cast has the same bytes on all devices.
    "fp8 bytes": Tolerance(0.0, 0.0, 0.0),
    "fp64": Tolerance(1e-12, 1e-13, 0.0),
    **dict.fromkeys((one for one in TORCH_NAMES if one[0] in "iu"), Tolerance(0.0, 0.0, 0.0)),
}


Rows = Mapping[Any, str | Tolerance]
"""Rows of the table, or tolerances, by the dtype of a result."""

_OWN: Final[Rows] = MappingProxyType({})


def rows_of(given: Rows | Tolerance) -> Rows:
    """Return rows by canonical dtypes, of which all floats share a single tolerance.

    Raises:
        InputError: a key is no dtype, or a value neither a tolerance nor the name of a row.
    """
    if isinstance(given, Tolerance):
        return {name: given for name in TORCH_NAMES if name[0] not in "iu"}
    rows: dict[str, str | Tolerance] = {}
    for key, row in given.items() if isinstance(given, Mapping) else [(given, "")]:
        name = str(key).rpartition(".")[2]
        dtype = dtype_name(getattr(torch, TORCH_NAMES.get(name, name), None))
        if dtype is None:
            raise InputError(f"tolerances: {key!r} is no dtype{did_you_mean(name, TORCH_NAMES)}")
        if not isinstance(row, Tolerance) and str(row) not in TOLERANCES:
            hint = did_you_mean(str(row), TOLERANCES)
            raise InputError(f"tolerances: {row!r} is not one of {', '.join(TOLERANCES)}{hint}")
        rows[dtype] = row
    return rows


def tolerance_of(result: torch.Tensor, named: Rows = _OWN) -> Tolerance:
    """Return the bounds for a result of a dtype; raises as `excess`."""
    dtype = str(dtype_of(result))
    row = named.get(dtype, dtype)
    if isinstance(row, Tolerance):
        return row
    if row not in TOLERANCES:
        known = ", ".join(TOLERANCES)
        raise InputError(
            f"no tolerance for results of {row}: give one by tolerances={{{dtype!r}: "
            f"Tolerance(relative, share, least)}}, or the name of a row: {known}"
        )
    return TOLERANCES[row]


def excess(got: torch.Tensor, want: torch.Tensor, named: Rows = _OWN) -> float:
    """Return the largest error by what is allowed: up to 1 is right; inf for a wrong shape or NaN.

    Args:
        got: a result.
        want: the exact one; where it is beyond the result's dtype, that is to be infinite.
        named: rows of the table, or tolerances, by dtypes of results that have another than
            their own.

    Raises:
        InputError: the table has no row for the dtype, and none is given.
    """
    tolerance = tolerance_of(got, named)
    if got.shape != want.shape:
        return float("inf")
    exact, rounded = want.double(), want.to(got.dtype).double()
    found, finite = got.double(), rounded.isfinite()
    if not torch.equal(found[~finite].nan_to_num(nan=0.5), rounded[~finite].nan_to_num(nan=0.5)):
        return float("inf")
    is_whole = not (got.dtype.is_floating_point or want.dtype.is_floating_point)
    # Integers of 64 bits that differ may be the same float64.
    differs = (got != want.to(got.dtype))[finite] & is_whole
    exact, found = exact[finite], found[finite]
    if not exact.numel():
        return 0.0
    if not found.isfinite().all():
        return float("inf")
    error, size = (found - exact).abs(), exact.abs()
    error = torch.where(differs, error.clamp(min=1.0), error)
    allowed = tolerance.relative * size + tolerance.share * size.max() + tolerance.least
    # Exact results have no error to divide, be nothing allowed.
    return float(torch.where(error == 0, 0.0, error / allowed).max())


def worst_element(got: torch.Tensor, want: torch.Tensor) -> str:
    """Describe the element that is furthest off: its place, its value and the exact one."""
    if got.shape != want.shape:
        return f"the shape is {tuple(got.shape)}; it must be {tuple(want.shape)}"
    if not got.numel():
        return ""
    mine, exact = got.double(), want.to(got.dtype).double()
    error = (mine - exact).abs()
    error[(mine == exact) | (mine.isnan() & exact.isnan())] = 0
    error[error.isnan()] = float("inf")
    place = int(error.argmax())
    at = [int(index) for index in torch.unravel_index(torch.tensor(place), got.shape)]
    wrong = int((error > 0).sum())
    mine, exact = mine.reshape(-1)[place], want.double().reshape(-1)[place]
    return f"{at} is {mine:.7g}, exact {exact:.7g}; {wrong} of {got.numel()} elements differ"
