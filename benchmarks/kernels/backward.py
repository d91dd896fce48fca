"""Attention's backward pass as one row: its two kernels together against the vendor's one call."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Final

PARTS: Final = ("attention_backward_q", "attention_backward_kv")
"""Two launches make the backward pass. Each row of either was timed beside the whole pass of
`scaled_dot_product_attention`, so that neither may be divided by it alone."""
KERNEL: Final = "attention_backward"

Row = Mapping[str, Any]


def with_backward(rows: Sequence[Row]) -> list[Row]:
    """Replace the rows of the two kernels by one row for each shape and dtype that both have."""
    others = [row for row in rows if row["kernel"] not in PARTS]
    return [*others, *backward(rows)]


def backward(rows: Sequence[Row]) -> list[Row]:
    """Add up the times of the two kernels, by shape and dtype.

    `over_vendor` divides the mean of the vendor's two medians by the sum of ours;
    `over_vendor_at_best` divides the smaller one.
    """
    by_place: dict[str, dict[str, Row]] = {}
    for row in rows:
        if row["kernel"] in PARTS and "over_vendor" in row:
            place = json.dumps([row["shape"], row["dtype"]])
            by_place.setdefault(place, {})[row["kernel"]] = row
    pairs = [[parts[name] for name in PARTS] for parts in by_place.values() if len(parts) == 2]
    return [_together(*pair) for pair in pairs]


def _together(q: Row, kv: Row) -> Row:
    ours = [row["ours"]["p50_us"] for row in (q, kv)]
    vendor = [row["vendor"]["p50_us"] for row in (q, kv)]
    return {
        "kernel": KERNEL,
        "group": KERNEL,
        "dtype": q["dtype"],
        "shape": q["shape"],
        "parts_us": ours,
        "ours": {"p50_us": sum(ours)},
        "vendor": {"p50_us": fmean(vendor)},
        "vendor_us": vendor,
        "over_vendor": round(fmean(vendor) / sum(ours), 3),
        "over_vendor_at_best": round(min(vendor) / sum(ours), 3),
    }
