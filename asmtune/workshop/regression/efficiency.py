"""Efficiency over sizes: what share of a roofline, or of its best rate, a kernel reaches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from asmtune.core.hardware.shipped import match_device
from asmtune.predict.roofs import Roof, roofs_of
from asmtune.workshop.regression.run import BenchRun, LaunchLoad, TimedSubject


@dataclass(frozen=True)
class WorkingPoint:
    """A size of a kernel with its rates, by the median of all samples.

    Attributes:
        row: what was timed.
        load: its operations and bytes.
        ideal_us: the least time that DRAM and cores allow; None if the device is not known.
    """

    row: TimedSubject
    load: LaunchLoad
    ideal_us: float | None

    @property
    def us(self) -> float:
        """Return the median time."""
        return self.row.statistics.p50_us

    @property
    def gops(self) -> float:
        """Return the billions of operations a second; 0 for a launch that only moves bytes."""
        return self.load.flops / self.us / 1e3

    @property
    def gbytes_per_s(self) -> float:
        """Return the billions of different bytes a second."""
        return self.load.bytes / self.us / 1e3

    @property
    def gops_per_w(self) -> float | None:
        """Return the billions of operations a second and watt; None where no energy was read."""
        energy_mj = self.row.energy_mj
        return self.load.flops / energy_mj / 1e6 if energy_mj and self.load.flops else None

    @property
    def size(self) -> float:
        """Return the operations of a launch, or its bytes if it has none."""
        return self.load.flops or self.load.bytes

    @property
    def roofline_share(self) -> float | None:
        """Share of the rate that DRAM and cores allow."""
        return None if self.ideal_us is None else self.ideal_us / self.us


@dataclass(frozen=True)
class EfficiencyCurve:
    """The sizes of a kernel and dtype, the smallest first."""

    kernel: str
    dtype: str
    points: tuple[WorkingPoint, ...]

    @property
    def basis(self) -> str:
        """Name the whole of `efficiencies`: the "roofline", or the "best rate" of the sizes."""
        known = all(point.roofline_share is not None for point in self.points)
        return "roofline" if known else "best rate"

    @cached_property
    def efficiencies(self) -> tuple[float, ...]:
        """Return the efficiency of each size."""
        shares = [point.roofline_share for point in self.points]
        known = [share for share in shares if share is not None]
        if len(known) == len(shares):
            return tuple(known)
        rates = [point.size / point.us for point in self.points]
        highest = max(rates)
        return tuple(rate / highest for rate in rates)

    @cached_property
    def best_place(self) -> int:
        """Return the index of the best working point: most efficient, of equals the smallest."""
        return self.efficiencies.index(max(self.efficiencies))

    @property
    def best(self) -> WorkingPoint:
        """Return the best working point."""
        return self.points[self.best_place]


def curves_of(run: BenchRun) -> tuple[EfficiencyCurve, ...]:
    """Return a curve per kernel and dtype, in the run's order; rows without a load are left out."""
    target = match_device(run.environment.gpu)
    loads = [row.load for row in run.rows if row.load is not None and row.load.flops]
    units = dict.fromkeys(load.unit for load in loads)
    roofs = () if target is None else roofs_of(target, units)
    points: dict[tuple[str, str], list[WorkingPoint]] = {}
    for row in run.rows:
        if row.load is not None and (row.load.flops or row.load.bytes):
            key = (row.subject.kernel, row.subject.dtype)
            points.setdefault(key, []).append(
                WorkingPoint(row, row.load, _ideal_us(row.load, roofs))
            )
    return tuple(
        EfficiencyCurve(*key, tuple(sorted(own, key=lambda point: (point.size, point.us))))
        for key, own in points.items()
    )


def _ideal_us(load: LaunchLoad, roofs: Sequence[Roof]) -> float | None:
    rates = {roof.name: roof.rate for roof in roofs}
    if not rates:
        return None
    compute_s = load.flops / rates[load.unit] if load.flops else 0.0
    return 1e6 * max(compute_s, load.bytes / rates["DRAM"])
