"""Comparison of two runs of an operation, with the tolerance of its dtype.

Other configs add up in another order, so that equal bits cannot be asked for. What is asked:

- infinities and NaN at the same places, whole numbers and truth values bit for bit;
- the root mean square of the differences at most one unit in the last place of the dtype, of the
  root mean square of the values;
- no difference above 8 such units of the largest value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch

UNITS: Final = {
    torch.bfloat16: 2.0**-7,
    torch.float16: 2.0**-10,
    # Products of float32 are made of tf32, which has the mantissa of float16.
    torch.float32: 2.0**-10,
}
MOST_UNITS: Final = 8.0


def compared(
    expected: Mapping[str, torch.Tensor], actual: Mapping[str, torch.Tensor]
) -> dict[str, dict[str, Any]]:
    """Compare each output with what was expected; a missing output differs."""
    rows = {}
    for name in {**expected, **actual}:
        if name in expected and name in actual:
            rows[name] = difference(expected[name], actual[name])
        else:
            rows[name] = {"equal": False, "why": "one run has no such output"}
    return rows


def difference(expected: torch.Tensor, actual: torch.Tensor) -> dict[str, Any]:
    """Compute how far a tensor is from another, in shares of the other's values.

    Returns:
        `equal`, by this module's tolerances; `bitwise`; `max_abs`, the largest difference;
        `max_share`, of the largest value; `rms_share`, of the root mean square; or `why` not.
    """
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return {"equal": False, "why": f"{_form(actual)} instead of {_form(expected)}"}
    if torch.equal(expected, actual):  # most are; the rest takes seconds where values are 1e8
        return {"equal": True, "bitwise": True, "max_abs": 0.0, "max_share": 0.0, "rms_share": 0.0}
    want, have = expected.double(), actual.double()
    finite = want.isfinite() & have.isfinite()
    odd = ~finite & (want != have) & ~(want.isnan() & have.isnan())
    if odd.any():
        return {"equal": False, "why": f"{int(odd.sum())} values are finite in one run alone"}
    apart = torch.where(finite, want - have, 0.0).abs()
    value = torch.where(finite, want, 0.0).abs()
    largest = _largest(apart)
    max_share = _share(largest, _largest(value))
    rms_share = _share(_rms(apart), _rms(value))
    unit = UNITS.get(expected.dtype, 0.0)
    equal = max_share <= MOST_UNITS * unit and rms_share <= unit
    errors = {"max_abs": largest, "max_share": max_share, "rms_share": rms_share}
    return {"equal": equal, "bitwise": False, **errors}


def worst(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Give the row that is furthest off: one that says why, else that of the largest share."""
    return max(rows, key=lambda row: ("why" in row, row.get("max_share", 0.0)))


def _form(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{tuple(tensor.shape)}"


def _largest(values: torch.Tensor) -> float:
    return float(values.max()) if values.numel() else 0.0


def _rms(values: torch.Tensor) -> float:
    return float(values.square().mean().sqrt()) if values.numel() else 0.0


def _share(part: float, whole: float) -> float:
    if part == 0.0:
        return 0.0
    return part / whole if whole else float("inf")
