"""Roofs of a machine, and points under them: configs of a launch, before tuning and after."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.predict.work_counts import VECTOR, WorkCounts

TimeKind = Literal["measured", "predicted"]


@dataclass(frozen=True)
class Load:
    """FLOPs of a launch, whatever its config, and the different bytes that it reads and writes."""

    flops: float
    bytes: float

    @classmethod
    def common(cls, counts: Sequence[WorkCounts]) -> Load:
        """Return the least that any of its configs asks for.

        Tiles that reach beyond a tensor's edge, and ways of summing, ask for more.
        """
        flops = min((one.flops for one in counts if one.flops), default=0.0)
        return cls(flops, min((one.bytes for one in counts if one.bytes), default=0.0))

    @property
    def intensity(self) -> float | None:
        """Compute the FLOPs a byte; None without FLOPs or without bytes."""
        return self.flops / self.bytes if self.flops and self.bytes else None


@dataclass(frozen=True)
class Roof:
    """A limit of a machine.

    Attributes:
        name: "fp16" and the like for the tensor cores, `VECTOR`, "DRAM" or "L2".
        rate: FLOP/s or bytes/s, by `kind`.
        source: where the figure comes from.
        figure: "specified", "measured", "derived" or "user", as `Figure.kind`.
    """

    name: str
    kind: Literal["compute", "memory"]
    rate: float
    source: str
    figure: str

    @property
    def label(self) -> str:
        """Name the roof: `fp16 tensor cores, 990 TFLOP/s`."""
        if self.kind == "memory":
            return f"{self.name}, {self.rate / 1e12:.3g} TB/s"
        cores = "fp32 cores" if self.name == VECTOR else f"{self.name} tensor cores"
        return f"{cores}, {self.rate / 1e12:.3g} TFLOP/s"


def roofs_of(target: Target, units: Iterable[str]) -> tuple[Roof, ...]:
    """List DRAM, L2, the ordinary cores, and the tensor cores for each of `WorkCounts.unit`."""
    names = dict.fromkeys((VECTOR, *units))
    compute = [
        (name, "fp32_flops_per_s" if name == VECTOR else f"tensor_flops_per_s.{name}")
        for name in names
    ]
    memory = [("DRAM", "dram_bytes_per_s"), ("L2", "l2_bytes_per_s")]
    return (
        *(_roof(target, name, "memory", field) for name, field in memory),
        *(_roof(target, name, "compute", field) for name, field in compute),
    )


def attainable(roofs: Sequence[Roof], unit: str, intensity: float) -> float:
    """Compute the FLOP/s that DRAM and cores of a type allow at an intensity."""
    rates = {roof.name: roof.rate for roof in roofs}
    return min(rates[unit], intensity * rates["DRAM"])


def _roof(target: Target, name: str, kind: Literal["compute", "memory"], field: str) -> Roof:
    figure = target.figure(field)
    return Roof(name, kind, figure.value, figure.source, figure.kind)


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
