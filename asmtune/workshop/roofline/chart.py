"""Points on a roofline: a config of a launch with its time, before tuning and after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from asmtune.core.config import Config
from asmtune.predict.roofs import Load, Roof, WorkCounts, attainable

TimeKind = Literal["measured", "predicted"]


@dataclass(frozen=True)
class Point:
    """A config of a launch.

    Attributes:
        counts: FLOPs and bytes that this config asks for.
        work: those of the launch, whatever its config; where the point stands, so that of two
            configs the faster one is the higher.
        how: whether a GPU took them, or the model says so.
        source: "store" or "shipped" of a measured time; of a predicted one
            "roofline", or "roofline x F" where it was multiplied by what the other point's
            measured time is of its predicted one; see `times_of`.
        predicted_us: the model's prediction, whatever `us` is.
        bottleneck: the term that takes most of `predicted_us`.
    """

    config: Config
    counts: WorkCounts
    work: Load
    us: float
    how: TimeKind
    source: str
    predicted_us: float
    bottleneck: str

    @property
    def flops_per_s(self) -> float:
        """Compute the FLOPs a second; 0 for a launch without any."""
        return self.work.flops / self.us * 1e6

    @property
    def bytes_per_s(self) -> float:
        """Compute the different bytes a second."""
        return self.work.bytes / self.us * 1e6


@dataclass(frozen=True)
class ChartEntry:
    """A launch before tuning and after.

    Attributes:
        before: the space's default config; None where it cannot run.
        after: the tuned config.
        tuned_by: "store" or "shipped" for a config that was tuned, "model" for its first pick.
        made: with what it was tuned (`triton`, `driver`, `date`); empty for a pick.
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
        """Divide the time before by the time after; None where there is no time before."""
        return None if self.before is None else self.before.us / self.after.us

    @property
    def moved(self) -> bool:
        """Say if tuning chose another config than the default."""
        return self.before is not None and self.before.config != self.after.config

    @property
    def measured(self) -> bool:
        """Say if all of its times were measured."""
        return all(p.how == "measured" for p in (self.before, self.after) if p is not None)


@dataclass(frozen=True)
class Chart:
    """Launches under a machine's roofs.

    Attributes:
        roofs: memory first; the cores of every type in use among them.
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

    @property
    def _rates(self) -> dict[str, float]:
        return {roof.name: roof.rate for roof in self.roofs}

    def share(self, point: Point) -> float:
        """Return a point's share of what DRAM and cores allow; above 1 where caches help.

        For a launch without FLOPs it is the share of DRAM's rate.
        """
        intensity, rates = point.work.intensity, self._rates
        if intensity is not None:
            return point.flops_per_s / attainable(self.roofs, point.counts.unit, intensity)
        if not point.work.bytes:
            return point.flops_per_s / rates[point.counts.unit]
        return point.bytes_per_s / rates["DRAM"]

    def limit(self, point: Point) -> str:
        """Name the roof over a point: "DRAM", or that of its cores."""
        intensity = point.work.intensity
        if intensity is None:
            return "DRAM" if point.work.bytes else point.counts.unit
        bound = intensity * self._rates["DRAM"] < self._rates[point.counts.unit]
        return "DRAM" if bound else point.counts.unit
