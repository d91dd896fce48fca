"""`roofline`: predicted microseconds without training, for any target.

A program demands cycles of each unit of its SM (features `*_cycles`), and has a
chain of latencies. The programs resident on an SM share its units, so that a
wave takes the longer of what the busiest unit needs for all of them and what
one program's chain takes. Waves follow each other; DRAM runs beside them.

The form is a roofline with occupancy (Williams et al., 2009; Hong and Kim, 2009,
for the interplay of throughput and latency). The shares below were measured on
an H200; nothing is fitted to a kernel.

The terms of a prediction sum to it: limits beside the longest count with the share that it does
not hide. The largest term is the bottleneck, wherever one is shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from asmtune.core.config import Config
from asmtune.core.hardware.model import L2_BYTES_PER_CYCLE, LAUNCH_US, Target, dram_rate
from asmtune.core.records.verdicts import Features, Verdict
from asmtune.predict.score.scorer import Candidate, Scorer

START_CYCLES: Final = 80.0
"""Time of an SM to start one program (measured over grids of tiny programs)."""

SERIAL_SHARE: Final = 0.12
"""Part of the other units' time that the busiest one does not hide (measured)."""

OVERLAP_SHARE: Final = 0.42
"""Part of the shorter of SM and DRAM time that the longer does not hide (measured)."""

UPDATE_US: Final = 1.1e-3
"""Time of an atomic update of an address that others update at once (measured on an H200)."""

LOCK_US: Final = 8.0
"""Time for which a program holds a lock, with the wait for its stores (measured on an H200)."""

SMOOTH_SHARE: Final = 0.15
"""Overlap of waves: 0 for lock-step, 1 for no tail at all (measured)."""


Column = NDArray[np.float64]


class Columns:
    """Features of several configs, by name a column, which is made when it is asked for."""

    def __init__(self, features: Sequence[Features]) -> None:
        self._features = features
        self._known: dict[str, Column] = {}

    def __getitem__(self, name: str) -> Column:
        if name not in self._known:
            self._known[name] = np.array([f[name] for f in self._features], dtype=np.float64)
        return self._known[name]


FeatureValues = Columns | Mapping[str, Any]


@dataclass(frozen=True)
class PredictedTime:
    """A predicted time.

    Attributes:
        us: microseconds of the launch.
        terms_us: part of them that each limit takes, by name, largest first; the sum is `us`.
    """

    us: float
    terms_us: Mapping[str, float]

    @property
    def bottleneck(self) -> str:
        """Name of the largest term."""
        return next(iter(self.terms_us))


class Roofline(Scorer):
    """Ranks by predicted time; the score is minus the logarithm of its microseconds."""

    name = "roofline"
    ranks_before_compiling = True

    def __init__(self, reason: str = "") -> None:
        self._reason = reason  # why it ranks in another's place

    def notes(self, target: Target) -> tuple[str, ...]:
        """Return what a reader must know about a ranking for a target."""
        return tuple(filter(None, (self._reason, target.caution)))

    def score(self, candidates: Sequence[Candidate], draw: int = 0) -> list[float]:  # noqa: ARG002
        """Return minus the log of predicted microseconds; configs without features come last."""
        read = [place for place, one in enumerate(candidates) if one.features is not None]
        scores = [float("-inf")] * len(candidates)
        if read:
            columns = Columns([c.features for c in candidates if c.features is not None])
            for place, us in zip(read, predicted_us(columns, candidates[0].target), strict=True):
                scores[place] = -math.log(us)
        return scores


def predict(features: Features, target: Target) -> PredictedTime:
    """Predict the time of one compiled config in one launch, and the terms that sum to it."""
    spent, units = _spent(features, target), _units(features)
    busiest = busiest_unit(features)
    to_us = 1e6 / target.clock_hz
    terms = {
        name: spent.rounds * cycles * (1.0 if name == busiest else SERIAL_SHARE) * to_us
        for name, cycles in units.items()
    }
    terms["atomics"] = 0.0
    terms["latency"] = max(0.0, spent.sm_us - sum(terms.values()))
    inside, outside = float(spent.inside_us), spent.dram_us
    terms["atomics" if spent.turns_us > spent.l2_us else "L2"] += inside - spent.sm_us
    shares = (1.0, OVERLAP_SHARE) if inside >= outside else (OVERLAP_SHARE, 1.0)
    terms = {name: us * shares[0] for name, us in terms.items()}
    terms |= {"DRAM": outside * shares[1], "launch": LAUNCH_US}
    us = float(_launch_us(inside, outside))
    return PredictedTime(us, dict(sorted(terms.items(), key=lambda term: -term[1])))


def predicted_us(features: FeatureValues, target: Target) -> Column:
    """Predict the times of configs from columns of their features, as `predict` does."""
    spent = _spending(features, target)
    us: Column = _launch_us(spent.inside_us, spent.dram_us)
    return us


def _launch_us(inside: Any, outside: Any) -> Any:
    longer, shorter = np.maximum(inside, outside), np.minimum(inside, outside)
    return longer + OVERLAP_SHARE * shorter + LAUNCH_US


def tail_us(features: Features, target: Target) -> float:
    """Return the part of the predicted time in which SMs have no program left while others do."""
    spent = _spent(features, target)
    resident, latency = max(1.0, features["programs_per_sm"]), features["latency_cycles"]
    waves, busy = features["programs"] / (resident * target.sms), _busy(features)
    wave = max(resident * busy, latency) if waves >= 1 else resident * busy
    even_us = max(waves * wave, latency) / target.clock_hz * 1e6
    even = _launch_us(max(even_us, spent.l2_us, spent.turns_us), spent.dram_us)
    return max(0.0, float(_launch_us(spent.inside_us, spent.dram_us) - even))


def rounded_terms(terms: Mapping[str, float], total: float, digits: int) -> dict[str, float]:
    """Round terms so that they sum to their rounded total; a larger term stays no smaller."""
    scale = 10**digits
    parts = {name: math.floor(value * scale) for name, value in terms.items()}
    missing = round(round(total, digits) * scale) - sum(parts.values())
    rests = sorted(terms, key=lambda name: parts[name] - terms[name] * scale)
    for name in rests[: max(0, missing)]:
        parts[name] += 1
    return {name: part / scale for name, part in parts.items()}


def busiest_unit(features: Features) -> str:
    """Return the unit of an SM that a program keeps busy longest: its time counts whole."""
    units = _units(features)
    return max(units, key=lambda name: units[name])


@dataclass(frozen=True, slots=True)
class _Spent:
    """Programs that an SM works through one after another, and time of a launch by limit."""

    rounds: Any
    sm_us: Any
    l2_us: Any
    turns_us: Any
    dram_us: Any

    @property
    def inside_us(self) -> Any:
        """Time of the SMs, L2 and those who wait for one address, which run in step."""
        return np.maximum(np.maximum(self.sm_us, self.l2_us), self.turns_us)


def _spent(features: Features, target: Target) -> _Spent:
    spent = _spending(features, target)
    return _Spent(*(float(getattr(spent, name)) for name in _Spent.__slots__))


def _spending(features: FeatureValues, target: Target) -> _Spent:
    """Return what configs spend, an element for each of the columns."""
    resident = np.maximum(1.0, features["programs_per_sm"])
    programs, sms = features["programs"], target.sms
    busy = _busy(features)
    latency = features["latency_cycles"]
    full, left = np.divmod(programs, resident * sms)
    wave = np.maximum(resident * busy, latency)
    last = np.ceil(left / sms)
    tail = np.where(left > 0, np.maximum(last * busy, latency), 0.0)
    stepped, rounds = full * wave + tail, full * resident + last
    flowing = np.maximum(programs / (resident * sms) * wave, latency)
    # Waves overlap from the second on.
    smooth = np.where(full > 0, SMOOTH_SHARE, 0.0)
    stepped = stepped + smooth * (flowing - stepped)
    return _Spent(
        rounds=rounds + smooth * (programs / sms - rounds),
        sm_us=np.maximum(stepped, features["longest_cycles"]) / target.clock_hz * 1e6,
        l2_us=programs * features["program_l2_bytes"] / target.l2_bytes_per_s * 1e6,
        turns_us=turns_us(features),
        dram_us=features["unique_bytes"] / dram_rate(target) * 1e6,
    )


def turns_us(features: FeatureValues) -> Any:
    """Return the time that updates of one address take, which wait for each other."""
    return features["updates"] * UPDATE_US + features["lock_turns"] * LOCK_US


def _units(features: FeatureValues) -> dict[str, Any]:
    return {
        "tensor": features["tensor_cycles"],
        "issue": features["issue_cycles"],
        "shared": features["shared_cycles"],
        "L1": features["l1_cycles"],
        "special": features["special_cycles"],
        "L2": features["program_l2_bytes"] / L2_BYTES_PER_CYCLE,
        "start": START_CYCLES,
    }


def _busy(features: FeatureValues) -> Any:
    """Return cycles of an SM that one program takes, if others fill its waits."""
    units = _units(features).values()
    most = reduce(np.maximum, units)
    return most + SERIAL_SHARE * (reduce(np.add, units) - most)


FASTER: Final = 0.01
"""Least gain, as a share of the predicted time, for which a change is suggested."""


@dataclass(frozen=True)
class Suggestion:
    """A change of axes that is predicted to be faster.

    Attributes:
        verdict: of the config with the change.
        term: the term of the predicted time that falls most.
        term_us: its microseconds before and after; None for both if the terms are not known.
    """

    verdict: Verdict
    term: str | None = None
    term_us: tuple[float, float] | None = None


def suggestions(own: Verdict, verdicts: Iterable[Verdict]) -> tuple[Suggestion, ...]:
    """Return up to two changes that are predicted to be faster, the fewest axes first.

    Each is a ranked config among `verdicts`, the fastest of those that change the same axes. One
    that changes further axes than another must be faster than that one as well. A config that
    cannot run gets none.
    """
    if own.dropped_at in ("rules", "compile"):
        return ()
    fastest: dict[frozenset[str], Verdict] = {}
    for verdict in verdicts:
        axes = changed_axes(own.config, verdict.config)
        if verdict.rank is None or not axes or not _faster(verdict, own):
            continue
        if axes not in fastest or _faster(verdict, fastest[axes], 0.0):
            fastest[axes] = verdict
    chosen: dict[frozenset[str], Verdict] = {}
    for axes in sorted(fastest, key=lambda axes: (len(axes), fastest[axes].predicted_us)):
        within = (fewer for names, fewer in chosen.items() if names < axes)
        if len(chosen) < MOST_SUGGESTED and all(_faster(fastest[axes], one) for one in within):
            chosen[axes] = fastest[axes]
    return tuple(_suggestion(own, verdict) for verdict in chosen.values())


MOST_SUGGESTED: Final = 2


def _faster(one: Verdict, other: Verdict, least: float = FASTER) -> bool:
    times = one.predicted_us, other.predicted_us
    return None not in times and (times[0] or 0.0) < (times[1] or 0.0) * (1 - least)


def _suggestion(own: Verdict, other: Verdict) -> Suggestion:
    before, after = own.terms_us, other.terms_us
    if not before or not after:
        return Suggestion(other)
    term = max(before, key=lambda name: before[name] - after.get(name, 0.0))
    return Suggestion(other, term, (before[term], after.get(term, 0.0)))


def nearest(config: Config, verdicts: Iterable[Verdict]) -> Verdict | None:
    """Return the other config with fewest changes; among equals, the one predicted fastest."""

    def place(verdict: Verdict) -> tuple[int, float]:
        return len(changed_axes(config, verdict.config)), verdict.predicted_us or 0.0

    return min((v for v in verdicts if v.config != config), key=place, default=None)


def changed_axes(one: Config, other: Config) -> frozenset[str]:
    """Return the names of the axes in which two configs differ."""
    first, second = one.to_dict(), other.to_dict()
    return frozenset(n for n in {**first, **second} if first.get(n) != second.get(n))
