"""How hard to search: four efforts, by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from asmtune.base.errors import InputError
from asmtune.base.text import did_you_mean
from asmtune.measure.timing.policy import TimingPolicy
from asmtune.tuning.search.base import BatchSizes, Limits


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How hard to search.

    Attributes:
        name: of the preset, or the user's own.
        strategy: what is compiled and timed next; one of `search.strategy_names()`.
        scorer: predicts before anything is timed.
        pace: configs a batch, and the expected gain below which the search ends. A space of
            no more configs than its first batch is compiled whole, unforeseen.
        limits: seconds, compiles and timings at most, and how many finalists there are.
        caps: configs whose `maxnreg` is read off the best ones' machine code, at most; only
            where the space has no such axis.
        policy: how to time.
    """

    name: str
    strategy: str = "model"
    scorer: str = "learned"
    pace: BatchSizes = field(default_factory=BatchSizes)
    limits: Limits = field(default_factory=Limits)
    caps: int = 8
    policy: TimingPolicy = field(default_factory=TimingPolicy)


EFFORTS: Final = {
    effort.name: effort
    for effort in (
        Effort(
            name="quick",
            pace=BatchSizes(first=16, batch=16, gain=0.1),
            limits=Limits(finalists=4),
            caps=0,
            policy=TimingPolicy(fine_rounds=12),
        ),
        Effort(name="balanced", pace=BatchSizes(first=32, batch=24, gain=0.02)),
        Effort(
            name="thorough",
            pace=BatchSizes(first=48, batch=48, trial=32, gain=0.002),
            limits=Limits(finalists=16),
            caps=16,
            policy=TimingPolicy(fine_rounds=40),
        ),
        Effort(
            name="exhaustive",
            strategy="exhaustive",
            pace=BatchSizes(first=64, batch=64, trial=64, gain=0.0),
            limits=Limits(finalists=16),
            caps=32,
            policy=TimingPolicy(fine_rounds=40),
        ),
    )
}
"""Efforts by name."""


def effort_of(value: str | Effort) -> Effort:
    """An effort by its name; an effort is itself.

    Raises:
        InputError: there is none of that name; lists them.
    """
    if isinstance(value, Effort):
        return value
    if value not in EFFORTS:
        hint = did_you_mean(str(value), EFFORTS)
        raise InputError(f"unknown effort {value!r}: the efforts are {', '.join(EFFORTS)}{hint}")
    return EFFORTS[value]
