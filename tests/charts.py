"""Charts of made-up launches on an H200."""

from __future__ import annotations

from collections.abc import Sequence

from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.predict.work_counts import WorkCounts
from asmtune.workshop.roofline.chart import Chart, ChartEntry, Load, Point, TimeKind, roofs_of

TUNED, DEFAULT = Config({"BLOCK": 256}, num_warps=8), Config({"BLOCK": 64})


def point(config: Config, counts: WorkCounts, us: float, how: TimeKind = "measured") -> Point:
    """A config's point, at its own counts."""
    load = Load(counts.flops, counts.bytes)
    source = "shipped" if how == "measured" else "roofline x 1.2"
    return Point(config, counts, load, us, how, source, us / 1.2, "DRAM")


def entry(
    kernel: str,
    counts: WorkCounts,
    times: tuple[float, float],
    how: TimeKind = "predicted",
    shape: int = 4096,
) -> ChartEntry:
    """A launch whose default took the first time, by a prediction unless told, and then less."""
    return ChartEntry(
        kernel=kernel,
        shape={"M": shape, "causal": True},
        dtypes={"x_ptr": "fp16", "out_ptr": "fp16"},
        before=point(DEFAULT, counts, times[0], how),
        after=point(TUNED, counts, times[1]),
        tuned_by="shipped",
        made={"triton": "3.6.0", "driver": "570.1", "date": "2025-03-04"},
        notes=("a note <of> its own",),
    )


def product(flops: float = 1.4e11, size: float = 1e8) -> WorkCounts:
    """A matrix product's."""
    return WorkCounts("fp16", flops, 0.0, size)


def chart(entries: Sequence[ChartEntry], failures: Sequence[tuple[str, str]] = ()) -> Chart:
    """These launches under an H200's roofs."""
    units = {p.counts.unit for e in entries for p in (e.before, e.after) if p is not None}
    roofs = roofs_of(load_target("H200"), sorted(units))
    made = {"asmtune": "0.1.0", "triton": "3.6.0", "torch": "2.13.0"}
    return Chart("H200", roofs, tuple(entries), tuple(failures), made, "2025-03-04T05:06:07+00:00")


def mixed() -> Chart:
    """A product, an element-wise kernel, and a copy, which does no FLOPs."""
    return chart(
        [
            entry("matmul", product(), (350.0, 200.0)),
            entry("matmul", product(1.4e10, 2e7), (50.0, 30.0), shape=1024),
            entry("softmax", WorkCounts("fp32", 0.0, 1e7, 1.2e7), (9.0, 8.0), "measured"),
            entry("copy", WorkCounts("fp32", 0.0, 0.0, 4e8), (110.0, 100.0)),
        ]
    )
