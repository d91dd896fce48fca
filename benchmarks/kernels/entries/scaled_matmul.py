"""Products of FP8 with scales against `torch._scaled_mm`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from asmtune.kernels.scaled_matmul import by_torch
from benchmarks.kernels.entry import Entry, Inputs


def vendor(given: Inputs) -> Callable[[], Any]:
    """Launch `torch._scaled_mm` at the same granularity, with sums as exact."""
    return lambda: by_torch(**given)


def by_block(shape: Mapping[str, int], dtype: str) -> bool:
    """Say if the row has scales of groups, or e5m2: its mean stands apart."""
    return shape["GROUP_K"] > 0 or dtype != "fp8e4nv"


ENTRY = Entry(
    dtypes=("fp8e4nv",),
    vendor_name="torch._scaled_mm",
    vendor_kind="vendor library",
    vendor=vendor,
    group="scaled gemm",
    apart=by_block,
    flops=lambda shape: 2.0 * shape["M"] * shape["N"] * shape["K"],
    rates={"fp8e4nv": "fp8"},
)
