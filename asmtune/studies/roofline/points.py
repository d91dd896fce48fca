"""Points on a roofline: a config of a launch with its time, before tuning and after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from asmtune.core.config import Config
from asmtune.studies.roofline.counts import Load, WorkCounts
from asmtune.studies.roofline.roofs import Roof, attainable

How = Literal["measured", "predicted"]


@dataclass(frozen=True)
class Point:
    """A config of a launch.

    Attributes:
        config: what is launched.
        counts: FLOPs and bytes that this config asks for.
        work: those of the launch, whatever its config; where the point stands, so that of two
            configs the faster one is the higher.
        us: microseconds of a launch.
        how: whether a GPU took them, or the model says so.
        source: "store", "shipped" or "this GPU" of a measured time; of a predicted one
            "roofline", or "roofline x F" where it was multiplied by what the other point's
            measured time is of its predicted one; see `times_of`.
        predicted_us: what the model says, whatever `us` is.
        bottleneck: what takes most of `predicted_us`.
    """

    config: Config
    counts: WorkCounts
    work: Load
    us: float
    how: How
    source: str
    predicted_us: float
    bottleneck: str

    @property
    def flops_per_s(self) -> float:
        """FLOPs a second; 0 of a launch that does none."""
        return self.work.flops / self.us * 1e6

    @property
    def bytes_per_s(self) -> float:
        """Different bytes a second."""
        return self.work.bytes / self.us * 1e6


@dataclass(frozen=True)
class ChartEntry:
    """A launch before tuning and after.

    Attributes:
        kernel, shape, dtypes: the launch.
        before: the space's default config; None where it cannot run.
        after: the tuned config.
        tuned_by: "store" or "shipped" for a config that was tuned, "model" for its first pick.
        made: with what it was tuned (`triton`, `driver`, `date`); empty for a pick.
        notes: what a reader must know.
    """

    kernel: str
    shape: Mapping[str, Any]
    dtypes: Mapping[str, str]
    before: Point | None
    after: Point
    tuned_by: Literal["store", "shipped", "model"]
    made: Mapping[str, str]
    notes: tuple[str, ...] = ()

    @property
    def speedup(self) -> float | None:
        """Time before over time after; None where there is no time before."""
        return None if self.before is None else self.before.us / self.after.us

    @property
    def moved(self) -> bool:
        """Whether tuning chose another config than the default."""
        return self.before is not None and self.before.config != self.after.config

    @property
    def measured(self) -> bool:
        """Whether no time of it is a prediction."""
        return all(p.how == "measured" for p in (self.before, self.after) if p is not None)


@dataclass(frozen=True)
class Chart:
    """Launches under a machine's roofs.

    Attributes:
        target: name of the machine.
        roofs: memory first; the cores of every type in use among them.
        entries: the launches.
        failures: launches that have no point, in words, and why.
        versions: of asmtune, triton and torch.
        date: ISO 8601, UTC.
    """

    target: str
    roofs: tuple[Roof, ...]
    entries: tuple[ChartEntry, ...]
    failures: tuple[tuple[str, str], ...]
    versions: Mapping[str, str]
    date: str

    def share(self, point: Point) -> float:
        """Of what DRAM and cores allow, how much a point reaches; above 1 where caches help.

        Of a launch without FLOPs it is the share of DRAM's rate.
        """
        intensity = point.work.intensity
        if intensity is None:
            if not point.work.bytes:
                cores = next(roof for roof in self.roofs if roof.name == point.counts.unit)
                return point.flops_per_s / cores.rate
            dram = next(roof for roof in self.roofs if roof.name == "DRAM")
            return point.bytes_per_s / dram.rate
        return point.flops_per_s / attainable(self.roofs, point.counts.unit, intensity)

    def limit(self, point: Point) -> str:
        """Name of the roof over a point: "DRAM", or that of its cores."""
        intensity = point.work.intensity
        if intensity is None:
            return "DRAM" if point.work.bytes else point.counts.unit
        rates = {roof.name: roof.rate for roof in self.roofs}
        bound = intensity * rates["DRAM"] < rates[point.counts.unit]
        return "DRAM" if bound else point.counts.unit
