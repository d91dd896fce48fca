"""The model's numbers beside those of hardware counters, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from asmtune.base.text import amount
from asmtune.core.hardware.model import L2_BYTES_PER_CYCLE, Target
from asmtune.core.records.verdicts import Features
from asmtune.predict.score.roofline import LAUNCH_US, predict
from asmtune.predict.why.findings import Why
from asmtune.report.cells import ReportTable, plain_table
from asmtune.report.explain.quantities import TERMS


@dataclass(frozen=True)
class CounterPair:
    """A quantity as predicted and as measured; None where one of them does not have it."""

    name: str
    meaning: str
    unit: str
    model: float | None
    measured: float | None


@dataclass(frozen=True)
class CounterReport:
    """Pairs of a launch, or one line that says why counters could not be read."""

    pairs: tuple[CounterPair, ...] = ()
    failure: str = ""

    def document(self) -> dict[str, Any]:
        """Return it as JSON values."""
        rows = [
            {"name": p.name, "unit": p.unit, "model": p.model, "measured": p.measured}
            for p in self.pairs
        ]
        return {"counters": rows, "failure": self.failure or None}

    def shown(self) -> ReportTable | Text:
        """Lay it out for a terminal."""
        if self.failure:
            return Text(f"counters: {self.failure}", "yellow")
        table = plain_table("The model against counters", ("", "model", "measured"))
        for pair in self.pairs:
            table.add_row(pair.meaning, _cell(pair, pair.model), _cell(pair, pair.measured))
        return table


def _cell(pair: CounterPair, value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0%}" if pair.unit == "share" else amount(value, pair.unit)


_MEANINGS = {
    "registers": ("registers a thread", "1"),
    "occupancy": ("occupancy", "share"),
    "dram_bytes": ("bytes of DRAM", "B"),
    "l2_hits": ("L2's hits", "share"),
    "conflicts": ("conflicts of banks in shared memory", "1"),
}


def paired(
    features: Features, target: Target, why: Why | None, counters: Mapping[str, float]
) -> CounterReport:
    """Set the model's shares of each unit's peak, and its counts, beside what was counted."""
    model = _model(features, target)
    pairs = [CounterPair("time", "time of the kernel", "us", model["time"], _us(counters))]
    for name in ("tensor", "issue", "shared", "L1", "special", "L2", "DRAM"):
        measured = counters.get(name)
        share = None if measured is None else measured / 100
        pairs.append(CounterPair(name, f"{TERMS[name]}, of peak", "share", model[name], share))
    for name, (meaning, unit) in _MEANINGS.items():
        measured = counters.get(name)
        if measured is not None and unit == "share":
            measured /= 100
        pairs.append(CounterPair(name, meaning, unit, model.get(name), measured))
    pairs += _sectors(why, counters)
    return CounterReport(tuple(p for p in pairs if p.measured is not None))


def _us(counters: Mapping[str, float]) -> float | None:
    return counters["time"] / 1e3 if "time" in counters else None


def _model(features: Features, target: Target) -> dict[str, float]:
    us = max(predict(features, target).us - LAUNCH_US, 1e-3)
    cycles, programs = us * 1e-6 * target.clock_hz, features["programs"]
    names = {"tensor": "tensor", "issue": "issue", "shared": "shared", "special": "special"}
    shares = {
        name: features[f"{own}_cycles"] * programs / target.sms / cycles
        for name, own in {**names, "L1": "l1"}.items()
    }
    l2_bytes = features["program_l2_bytes"] * programs
    way = min(target.l2_bytes_per_s, L2_BYTES_PER_CYCLE * target.sms * target.clock_hz)
    return {
        **shares,
        "time": us,
        "L2": l2_bytes / way / (us * 1e-6),
        "DRAM": features["unique_bytes"] / target.dram_bytes_per_s / (us * 1e-6),
        "registers": features["regs_per_thread"],
        "occupancy": min(1.0, features["occupancy"] * min(1.0, features["waves"])),
        "dram_bytes": features["unique_bytes"],
    }


def _sectors(why: Why | None, counters: Mapping[str, float]) -> Iterator[CounterPair]:
    """Yield sectors of a warp's request; copies past the registers are counted elsewhere."""
    for name, kind in (("load", "read"), ("store", "write")):
        requests = counters.get(f"{name}_requests")
        measured = counters.get(f"{name}_sectors", 0.0) / requests if requests else None
        own = [one for one in why.accesses if one.kind == kind and not one.by] if why else []
        wanted = sum(one.bytes / max(one.used, 1e-9) for one in own)
        asked = sum(one.bytes / max(one.used, 1e-9) * one.asked for one in own)
        meaning = f"sectors of a {name}'s request"
        model = asked / wanted if wanted else None
        yield CounterPair(f"{name}_sectors", meaning, "1", model, measured)
