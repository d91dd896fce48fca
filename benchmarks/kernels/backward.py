"""Attention's backward pass as one row a shape: as a whole, or its two kernels added up.

`attention_backward` makes all three gradients, and is timed alone and as it is called, as other
kernels are. Shapes that it was not timed at have the sum of the two kernels' times.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Final

PARTS: Final = ("attention_backward_q", "attention_backward_kv")
"""Each row of either kernel was timed beside the whole backward pass of
`scaled_dot_product_attention`, so that neither may be divided by it alone."""
KERNEL: Final = "attention_backward"

Row = Mapping[str, Any]


def with_backward(rows: Sequence[Row]) -> list[Row]:
    """Leave out the rows of the two kernels; add one for each place that both alone were timed at.

    A place is a shape and a dtype.
    """
    others = [row for row in rows if row["kernel"] not in PARTS]
    return [*others, *backward(rows)]


def backward(rows: Sequence[Row]) -> list[Row]:
    """Add up the times of the two kernels, by shape and dtype, where the whole pass has no row.

    `over_vendor` divides the mean of the vendor's two medians by the sum of ours;
    `over_vendor_at_best` divides the smaller one.
    """
    by_place: dict[str, dict[str, Row]] = {}
    for row in rows:
        if row["kernel"] in (KERNEL, *PARTS) and "over_vendor" in row:
            place = json.dumps([row["shape"], row["dtype"]])
            by_place.setdefault(place, {})[row["kernel"]] = row
    return [
        _together(*(parts[name] for name in PARTS))
        for parts in by_place.values()
        if parts.keys() == set(PARTS)
    ]


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
