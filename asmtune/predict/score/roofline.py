"""`roofline`: predicted microseconds without training, for any target.

A program demands cycles of each unit of its SM (features `*_cycles`), and has a
chain of latencies. The programs resident on an SM share its units, so that a
wave takes the longer of what the busiest unit needs for all of them and what
one program's chain takes. Waves follow each other; DRAM runs beside them.

The form is a roofline with occupancy (Williams et al., 2009; Hong and Kim, 2009,
for the interplay of throughput and latency). The shares below were measured on
an H200; nothing is fitted to a kernel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from asmtune.core.hardware.model import L2_BYTES_PER_CYCLE, Target
from asmtune.core.records.verdicts import Features
from asmtune.predict.score.scorers import Candidate, Scorer

LAUNCH_US: Final = 4.5
"""Least time between two events around a launch on an H200."""

START_CYCLES: Final = 80.0
"""Time of an SM to start one program (measured over grids of tiny programs)."""

SERIAL_SHARE: Final = 0.12
"""Part of the other units' time that the busiest one does not hide (measured)."""

OVERLAP_SHARE: Final = 0.42
"""Part of the shorter of SM and DRAM time that the longer does not hide (measured)."""

DRAM_SHARE: Final = 0.88
"""Share of the datasheet's DRAM rate that a copy reaches, if none was measured (H200: 0.885)."""

SMOOTH_SHARE: Final = 0.15
"""Overlap of waves: 0 for lock-step, 1 for no tail at all (measured)."""

ADVICE: Final[Mapping[str, tuple[str, str]]] = {
    "tensor": ("use a narrower dtype", "fill the last wave: another tile size, or split K"),
    "issue": ("a larger tile, so that fewer instructions serve more data", "fewer warps"),
    "shared": ("a wider tile along N, so that operands are read less often", "fewer warps along N"),
    "L1": ("a last axis that is contiguous and a multiple of 16 bytes", "a larger BLOCK on it"),
    "special": ("exp2 in place of exp, and scales folded into it", "approximate functions"),
    "L2": ("a larger tile, which reads each operand less often", "GROUP_M, so that tiles share"),
    "DRAM": ("a narrower dtype, or fusing what reads the same data", "nothing: it is at the limit"),
    "start": ("larger tiles, so that there are fewer programs", "a loop over tiles in a program"),
    "latency": ("more num_stages or more programs an SM (fewer registers)", "more, smaller tiles"),
    "launch": ("a CUDA graph", "fusing it with its neighbour"),
}
"""Two things to try for each bottleneck."""


@dataclass(frozen=True)
class PredictedTime:
    """A predicted time.

    Attributes:
        us: microseconds of the launch.
        parts_us: time that each limit alone would take, by name; the largest is the bottleneck.
    """

    us: float
    parts_us: Mapping[str, float]

    @property
    def bottleneck(self) -> str:
        """Name of the limit that takes most."""
        return max(self.parts_us, key=lambda name: self.parts_us[name])

    @property
    def advice(self) -> tuple[str, str]:
        """Two things to try."""
        return ADVICE[self.bottleneck]


class Roofline(Scorer):
    """Ranks by predicted time; the score is minus the logarithm of its microseconds."""

    name = "roofline"
    ranks_before_compiling = True

    def score(self, candidates: Sequence[Candidate], draw: int = 0) -> list[float]:  # noqa: ARG002
        """Return minus the log of predicted microseconds; configs without features come last."""
        return [
            float("-inf") if c.features is None else -math.log(predict(c.features, c.target).us)
            for c in candidates
        ]


def predict(features: Features, target: Target) -> PredictedTime:
    """Predict the time of one compiled config in one launch."""
    spent = _spent(features, target)
    inside, outside = spent.inside_us, spent.dram_us
    us = max(inside, outside) + OVERLAP_SHARE * min(inside, outside) + LAUNCH_US
    parts = _parts(features, target, spent.sm_us, spent.l2_us, spent.dram_us)
    return PredictedTime(us, parts)


def terms_us(features: Features, target: Target) -> dict[str, float]:
    """Return each limit's part of the predicted time, by name; the sum is the prediction.

    `PredictedTime.parts_us` is the time that each limit alone would take. Here, limits beside the
    longest count only with the share that it does not hide.
    """
    spent, units = _spent(features, target), _units(features, target)
    busiest = busiest_unit(features, target)
    terms = {
        name: spent.rounds * cycles * (1.0 if name == busiest else SERIAL_SHARE)
        for name, cycles in units.items()
    }
    to_us = 1e6 / target.clock_hz
    terms = {name: cycles * to_us for name, cycles in terms.items()}
    terms["latency"] = max(0.0, spent.sm_us - sum(terms.values()))
    terms["L2"] += spent.inside_us - spent.sm_us
    sm_leads = spent.inside_us >= spent.dram_us
    inside, outside = (1.0, OVERLAP_SHARE) if sm_leads else (OVERLAP_SHARE, 1.0)
    terms = {name: us * inside for name, us in terms.items()}
    return {**terms, "DRAM": spent.dram_us * outside, "launch": LAUNCH_US}


def busiest_unit(features: Features, target: Target) -> str:
    """Return the unit of an SM that a program keeps busy longest: its time counts whole."""
    units = _units(features, target)
    return max(units, key=lambda name: units[name])


@dataclass(frozen=True, slots=True)
class _Spent:
    """Time of a launch by limit.

    Attributes:
        rounds: programs that an SM works through one after another.
        sm_us: time of the SMs, units and waits.
        l2_us, dram_us: time of the paths to memory.
    """

    rounds: float
    sm_us: float
    l2_us: float
    dram_us: float

    @property
    def inside_us(self) -> float:
        """Of the SMs and L2, which run in step."""
        return max(self.sm_us, self.l2_us)


def _spent(features: Features, target: Target) -> _Spent:
    resident = max(1.0, features["programs_per_sm"])
    programs, sms = features["programs"], target.sms
    busy = _busy(features, target)
    latency = features["latency_cycles"]
    full, left = divmod(programs, resident * sms)
    wave = max(resident * busy, latency)
    last = math.ceil(left / sms)
    tail = max(last * busy, latency) if left else 0.0
    stepped, rounds = full * wave + tail, full * resident + last
    if full:
        flowing = max(programs / (resident * sms) * wave, latency)
        stepped += SMOOTH_SHARE * (flowing - stepped)
        rounds += SMOOTH_SHARE * (programs / sms - rounds)
    return _Spent(
        rounds=rounds,
        sm_us=max(stepped, features["longest_cycles"]) / target.clock_hz * 1e6,
        l2_us=programs * features["program_l2_bytes"] / target.l2_bytes_per_s * 1e6,
        dram_us=features["unique_bytes"] / dram_rate(target) * 1e6,
    )


def _units(features: Features, target: Target) -> dict[str, float]:  # noqa: ARG001
    return {
        "tensor": features["tensor_cycles"],
        "issue": features["issue_cycles"],
        "shared": features["shared_cycles"],
        "L1": features["l1_cycles"],
        "special": features["special_cycles"],
        "L2": features["program_l2_bytes"] / L2_BYTES_PER_CYCLE,
        "start": START_CYCLES,
    }


def _busy(features: Features, target: Target) -> float:
    """Return cycles of an SM that one program takes, if others fill its waits."""
    units = _units(features, target).values()
    most = max(units)
    return most + SERIAL_SHARE * (sum(units) - most)


def _parts(
    features: Features, target: Target, sm_us: float, l2_us: float, dram_us: float
) -> dict[str, float]:
    """Return each limit's own time: units by their share of the SM's time, latency by the rest."""
    resident = max(1.0, features["programs_per_sm"])
    share = min(1.0, features["programs"] / (resident * target.sms))
    together = max(1.0, resident * share)
    wave = max(together * _busy(features, target), features["latency_cycles"], 1.0)
    parts = {
        name: sm_us * together * cycles / wave for name, cycles in _units(features, target).items()
    }
    parts["L2"] = max(parts["L2"], l2_us)
    hidden = together * _busy(features, target)
    parts["latency"] = sm_us * max(0.0, features["latency_cycles"] - hidden) / wave
    return {**parts, "DRAM": dram_us, "launch": LAUNCH_US}


def dram_rate(target: Target) -> float:
    """Return the bytes a second that DRAM gives in practice."""
    return target.measured_dram_bytes_per_s or DRAM_SHARE * target.dram_bytes_per_s
