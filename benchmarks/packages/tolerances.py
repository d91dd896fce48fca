"""Comparison of two runs of an operation, with the tolerance of its dtype.

Other configs add up in another order, so that equal bits cannot be asked for. What is asked:

- infinities and NaN at the same places, whole numbers and truth values bit for bit;
- the root mean square of the differences at most one unit in the last place of the dtype, of the
  root mean square of the values;
- no difference above 8 such units of the largest value.

Where that does not hold, as with atomic sums of float16, a reference in float64 can tell whether an
output is as exact as the plain program's: its root mean square error at most 1.1 times, and its
largest error at most 1.5 times, the worst of the plain program's own calls. The margins are for the
spread between calls, whose largest error is that of one value. A reference is believed where the
plain program's own error is at most 8 units: else it computes something else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

UNITS: Final = {
    torch.bfloat16: 2.0**-7,
    torch.float16: 2.0**-10,
    # Products of float32 are made of tf32, which has the mantissa of float16.
    torch.float32: 2.0**-10,
}
MOST_UNITS: Final = 8.0
RMS_MARGIN: Final = 1.1
MAX_MARGIN: Final = 1.5


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
    unit = UNITS.get(expected.dtype, 0.0)
    row = error(expected, actual)
    if "why" in row:
        return {"equal": False, **row}
    equal = row["max_share"] <= MOST_UNITS * unit and row["rms_share"] <= unit
    return {"equal": equal, "bitwise": False, **row}


def error(expected: torch.Tensor, actual: torch.Tensor) -> dict[str, Any]:
    """Compute `max_abs`, `max_share` and `rms_share` of two tensors of one shape; or `why` not."""
    if expected.shape != actual.shape:
        return {"why": f"{_form(actual)} instead of {_form(expected)}"}
    want, have = expected.double(), actual.double()
    finite = want.isfinite() & have.isfinite()
    odd = ~finite & (want != have) & ~(want.isnan() & have.isnan())
    if odd.any():
        return {"why": f"{int(odd.sum())} values are finite in one run alone"}
    apart = torch.where(finite, want - have, 0.0).abs()
    value = torch.where(finite, want, 0.0).abs()
    largest = _largest(apart)
    max_share = _share(largest, _largest(value))
    rms_share = _share(_rms(apart), _rms(value))
    return {"max_abs": largest, "max_share": max_share, "rms_share": rms_share}


def as_exact(
    reference: torch.Tensor, plain: Sequence[torch.Tensor], own: Sequence[torch.Tensor]
) -> dict[str, Any]:
    """Compare errors against a reference: those of calls, and those of the plain program's calls.

    Returns:
        `as_exact`, by this module's margins; `plain` and `own`, the worst errors of each; or `why`
        the reference cannot tell.
    """
    if len({call.dtype for call in (*plain, *own)}) > 1:
        return {"as_exact": False, "why": "the calls differ in their dtype"}
    errors = {
        name: worst([error(reference, call) for call in calls])
        for name, calls in (("plain", plain), ("own", own))
    }
    for name, row in errors.items():
        if "why" in row:
            return {"as_exact": False, "why": f"{name} against the reference: {row['why']}"}
    unit = UNITS.get(plain[0].dtype, 0.0)
    share = errors["plain"]["rms_share"]
    if share > MOST_UNITS * unit:
        why = f"the plain program is {share:.3g} from the reference, above {MOST_UNITS * unit:.3g}"
        return {"as_exact": False, "why": why, **errors}
    within = all(
        errors["own"][key] <= margin * errors["plain"][key]
        for key, margin in (("rms_share", RMS_MARGIN), ("max_share", MAX_MARGIN))
    )
    return {"as_exact": within, **errors}


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
