"""`roofline`: predicted microseconds without training, for any target.

A program demands cycles of each unit of its SM (features `*_cycles`), and has a
chain of latencies. The programs resident on an SM share its units, so that a
wave takes the longer of what the busiest unit needs for all of them and what
one program's chain takes. Waves follow each other; DRAM runs beside them.

The form is a roofline with occupancy (Williams et al., 2009; Hong and Kim, 2009,
for the interplay of throughput and latency). The shares below were measured on
an H200; nothing is fitted to a kernel.

Each bottleneck has two pieces of advice. A config follows one if its features say so, not by the
names of its axes: "fewer warps" is a smaller feature `num_warps`, whatever else changes. It must
be predicted faster as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from asmtune.core.config import Config
from asmtune.core.hardware.model import L2_BYTES_PER_CYCLE, Target
from asmtune.core.records.verdicts import Features, Verdict
from asmtune.predict.score.scorer import Candidate, Scorer

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
    return PredictedTime(us, _parts(features, target, spent))


def terms_us(features: Features, target: Target) -> dict[str, float]:
    """Return each limit's part of the predicted time, by name; the sum is the prediction.

    `PredictedTime.parts_us` is the time that each limit alone would take. Here, limits beside the
    longest count only with the share that it does not hide.
    """
    spent, units = _spent(features, target), _units(features)
    busiest = busiest_unit(features)
    to_us = 1e6 / target.clock_hz
    terms = {
        name: spent.rounds * cycles * (1.0 if name == busiest else SERIAL_SHARE) * to_us
        for name, cycles in units.items()
    }
    terms["latency"] = max(0.0, spent.sm_us - sum(terms.values()))
    terms["L2"] += spent.inside_us - spent.sm_us
    sm_leads = spent.inside_us >= spent.dram_us
    inside, outside = (1.0, OVERLAP_SHARE) if sm_leads else (OVERLAP_SHARE, 1.0)
    terms = {name: us * inside for name, us in terms.items()}
    return {**terms, "DRAM": spent.dram_us * outside, "launch": LAUNCH_US}


def busiest_unit(features: Features) -> str:
    """Return the unit of an SM that a program keeps busy longest: its time counts whole."""
    units = _units(features)
    return max(units, key=lambda name: units[name])


@dataclass(frozen=True, slots=True)
class _Spent:
    """Programs that an SM works through one after another, and time of a launch by limit."""

    rounds: float
    sm_us: float
    l2_us: float
    dram_us: float

    @property
    def inside_us(self) -> float:
        """Time of the SMs and L2, which run in step."""
        return max(self.sm_us, self.l2_us)


def _spent(features: Features, target: Target) -> _Spent:
    resident = max(1.0, features["programs_per_sm"])
    programs, sms = features["programs"], target.sms
    busy = _busy(features)
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


def _units(features: Features) -> dict[str, float]:
    return {
        "tensor": features["tensor_cycles"],
        "issue": features["issue_cycles"],
        "shared": features["shared_cycles"],
        "L1": features["l1_cycles"],
        "special": features["special_cycles"],
        "L2": features["program_l2_bytes"] / L2_BYTES_PER_CYCLE,
        "start": START_CYCLES,
    }


def _busy(features: Features) -> float:
    """Return cycles of an SM that one program takes, if others fill its waits."""
    units = _units(features).values()
    most = max(units)
    return most + SERIAL_SHARE * (sum(units) - most)


def _parts(features: Features, target: Target, spent: _Spent) -> dict[str, float]:
    """Return each limit's own time: units by their share of the SM's time, latency by the rest."""
    resident = max(1.0, features["programs_per_sm"])
    share = min(1.0, features["programs"] / (resident * target.sms))
    together = max(1.0, resident * share)
    hidden = together * _busy(features)
    wave = max(hidden, features["latency_cycles"], 1.0)
    sm_us = spent.sm_us
    parts = {name: sm_us * together * cycles / wave for name, cycles in _units(features).items()}
    parts["L2"] = max(parts["L2"], spent.l2_us)
    parts["latency"] = sm_us * max(0.0, features["latency_cycles"] - hidden) / wave
    return {**parts, "DRAM": spent.dram_us, "launch": LAUNCH_US}


def dram_rate(target: Target) -> float:
    """Return the bytes a second that DRAM gives in practice."""
    return target.measured_dram_bytes_per_s or DRAM_SHARE * target.dram_bytes_per_s


FASTER: Final = 0.01
"""Least gain, as a share of the predicted time, for which a config is named."""

Helps = Callable[[Features, Features], bool]
"""Takes features of another config and of one's own; True if the other follows the advice."""


@dataclass(frozen=True)
class Suggestion:
    """A piece of advice, and a config that follows it.

    Attributes:
        text: in general.
        verdict: of the config that follows it with fewest changes, the fastest among equals; None
            if no ranked config follows it and is predicted faster.
        possible: False if no config can follow it: a narrower dtype, say, is not a choice of
            configs.
    """

    text: str
    verdict: Verdict | None
    possible: bool


def suggestions(own: Verdict, verdicts: Iterable[Verdict]) -> tuple[Suggestion, ...]:
    """Return two things to try against a config's bottleneck; none if it was not predicted.

    Ranked configs among `verdicts` may be named.
    """
    if own.bottleneck is None or own.features is None or own.predicted_us is None:
        return ()
    limit = own.predicted_us * (1 - FASTER)
    faster = [
        v for v in verdicts if v.rank is not None and v.predicted_us and v.predicted_us < limit
    ]
    suggested: list[Suggestion] = []
    for text, helps in _advice(own.bottleneck, own.features):
        named = [s.verdict for s in suggested]
        free = [
            v
            for v in faster
            if helps
            and v.features is not None
            and helps(v.features, own.features)
            and v not in named
        ]
        suggested.append(Suggestion(text, nearest(own.config, free), helps is not None))
    return tuple(suggested)


def _advice(bottleneck: str, own: Features) -> tuple[tuple[str, Helps | None], ...]:
    """Return what to try, with a test for configs that do so."""
    usual = tuple(zip(ADVICE[bottleneck], HELPS[bottleneck], strict=True))
    if own["spill_words"] and bottleneck in SPILLS_FEED:
        return (SPILLS, usual[0])
    return usual


def nearest(config: Config, verdicts: Iterable[Verdict]) -> Verdict | None:
    """Return the other config with fewest changes; among equals, the one predicted fastest."""

    def place(verdict: Verdict) -> tuple[int, float]:
        return changed(config, verdict.config), verdict.predicted_us or 0.0

    return min((v for v in verdicts if v.config != config), key=place, default=None)


def changed(one: Config, other: Config) -> int:
    """Return how many axes two configs differ in."""
    first, second = one.to_dict(), other.to_dict()
    return sum(first.get(name) != second.get(name) for name in {**first, **second})


def _less(name: str) -> Helps:
    return lambda other, own: other[name] < own[name]


def _less_in_all(name: str) -> Helps:
    return lambda other, own: other[name] * other["programs"] < own[name] * own["programs"]


def _hides_more(other: Features, own: Features) -> bool:
    deeper = other["num_stages"] > own["num_stages"]
    return deeper or other["programs_per_sm"] > own["programs_per_sm"]


_FEWER_WARPS: Final = _less("num_warps")

HELPS: Final[Mapping[str, tuple[Helps | None, Helps | None]]] = {
    "tensor": (None, _less("tail")),
    "issue": (_less_in_all("program_instructions"), _FEWER_WARPS),
    "shared": (_less_in_all("shared_cycles"), _FEWER_WARPS),
    "L1": (None, _less_in_all("l1_cycles")),
    "special": (None, None),
    "L2": (_less_in_all("program_l2_bytes"), None),
    "DRAM": (None, None),
    "start": (_less("programs"), None),
    "latency": (_hides_more, lambda other, own: other["programs"] > own["programs"]),
    "launch": (None, None),
}
"""For each piece of `ADVICE`, in its order, a test for configs that follow it; None if no
config can, since it asks for another kernel, dtype or layout."""

SPILLS: Final = (
    "fewer spilled registers: a looser maxnreg, a smaller tile or more warps",
    _less("spill_words"),
)
"""Advice that goes first if registers spill and spilling takes part in the bottleneck."""

SPILLS_FEED: Final = frozenset({"issue", "L1", "latency"})
"""Bottlenecks that loads and stores of spilled words add to."""
