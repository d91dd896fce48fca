"""How long a config takes: as it was measured, or else as the model says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from asmtune.base.fingerprint import canonical
from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement, Outcome
from asmtune.core.records.verdicts import Verdict
from asmtune.store.lookup import StoreLookup
from asmtune.studies.roofline.points import How

GPU: Final = "this GPU"
"""Source of times that are taken now."""

MODEL: Final = "roofline"
"""Source of predicted times: the scorer of that name."""


@dataclass(frozen=True)
class Time:
    """A time of a launch.

    Attributes:
        us: microseconds.
        how, source: as `Point` has them.
    """

    us: float
    how: How
    source: str


Times = Mapping[str, Time]
"""Times by `config_key`."""


def recorded(found: StoreLookup) -> Times:
    """What a record that holds was timed at; nothing without one."""
    if found.outcome != "hit" or found.record is None:
        return {}
    timed = found.record.measurements
    return {
        config_key(m.config): Time(m.median_us, "measured", found.layer)
        for m in timed
        if m.median_us > 0
    }


def taken(outcomes: Sequence[Outcome]) -> tuple[Times, tuple[str, ...]]:
    """What was timed just now; and who failed, in words."""
    times = {
        config_key(config): Time(outcome.median_us, "measured", GPU)
        for config, outcome in outcomes
        if isinstance(outcome, Measurement) and outcome.median_us > 0
    }
    failed = (f"{c} was not timed: {o}" for c, o in outcomes if isinstance(o, Failure))
    return times, tuple(failed)


def times_of(verdicts: Sequence[Verdict], measured: Times, least_us: float = 0.0) -> list[Time]:
    """A time for each verdict: measured where there is one, else predicted.

    Between configs of one kernel a prediction is wrong by much the same factor (what the model
    is held to is their order): beside a measured time, predicted ones are multiplied by what
    that time is of its own prediction. As they stand, the two would not compare.

    Args:
        verdicts: of configs that can run, of one launch.
        measured: times by config.
        least_us: what no predicted time may be under.
    """
    known = [measured.get(config_key(verdict.config)) for verdict in verdicts]
    pairs = zip(verdicts, known, strict=True)
    factors = [time.us / predicted(v) for v, time in pairs if time is not None and predicted(v)]
    factor = factors[-1] if factors else 1.0
    source = f"{MODEL} x {factor:.3g}" if factors else MODEL
    return [
        time or _predicted(predicted(verdict) * factor, source, least_us)
        for verdict, time in zip(verdicts, known, strict=True)
    ]


def slowest(found: StoreLookup) -> float:
    """Microseconds that a config without a time in a record takes at least; 0 without a record.

    Tuning times the default in every run, and who ships a record leaves the slower ones out.
    """
    return max((time.us for time in recorded(found).values()), default=0.0)


def _predicted(us: float, source: str, least_us: float) -> Time:
    if us >= least_us:
        return Time(us, "predicted", source)
    return Time(least_us, "predicted", f"{source}, but no less than what the record keeps")


def config_key(config: Config) -> str:
    """What tells configs apart, whatever the order of their axes; stored ones have no hooks."""
    return canonical(config.to_dict())


def predicted(verdict: Verdict) -> float:
    """Microseconds by the model, which every config that compiled has."""
    return verdict.predicted_us or 0.0
