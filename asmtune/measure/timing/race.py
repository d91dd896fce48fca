"""The race: short timings first, more for configs that may still win, new ones at the end.

Configs that are compared are interleaved, one sample each per round, so that drifting clocks affect
all of them alike. The best of earlier trials runs again in each new one, since timings taken
minutes ago, at other clocks, do not compare.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Final

from asmtune.base.errors import MeasureError
from asmtune.core.config import Config
from asmtune.core.failures import guarded
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement, Outcome, SampleStatistics
from asmtune.measure.timing.clock import Clock, Subject
from asmtune.measure.timing.policy import TimingPolicy
from asmtune.measure.timing.statistics import ENOUGH, slower, summarise

_LONG_US: Final = 5_000.0
_LONG_FACTOR: Final = 5.0
"""Limits beyond which a single sample drops a config: it costs as much as a hundred others, and
another process's turn on the GPU (2 ms) cannot make a quick kernel's sample that long."""

_FINAL_SHARE: Final = 5
"""A finalist gets this many times the device time of a trial."""


class Race:
    """Finds the fastest of many subjects, in trials, then in a final.

    A trial drops configs that are clearly slower than the best:

    - after two samples, if both are beyond `hopeless` times the best median; after
      one, if it is beyond five times it, and beyond 5 ms;
    - from `coarse_rounds` on, if the fastest sample is beyond `contention` times it;
    - from five samples on, if Mann-Whitney says so and the median is beyond `near_tie`.

    A dropped config stays out of the trial, since samples of other rounds do not compare. A
    subject's device time is bounded by `entrant_us`.

    Attributes:
        best: the best of all trials, as timed in the last one; None before the first.

    Args:
        clock, policy: takes the samples; says how many, and what counts as slower.
        seed: seed of the order within each round.
    """

    def __init__(self, clock: Clock, policy: TimingPolicy, seed: int = 0) -> None:
        self.best: Measurement | None = None
        self._incumbent: Subject | None = None
        self._clock = clock
        self._policy = policy
        self._random = random.Random(seed)

    def trial(self, subjects: Sequence[Subject]) -> list[Outcome]:
        """Time candidates against each other and the best so far.

        Returns:
            The outcome of each candidate, in order; of dropped ones, from the few samples that
            they got.
        """
        field = _Field(self._clock, self._random)
        field.enter(subjects)
        if self._incumbent is not None and field.running:
            field.enter([self._incumbent])
        contenders = list(field.running)
        for number in range(1, self._policy.most_rounds + 1):
            chosen = set(contenders)
            staying = [s for s in field.running if s.always or s in chosen]
            field.round(s for s in staying if not _timed_for(s, self._policy.entrant_us, 2))
            contenders = self._in_contention([s for s in contenders if s not in field.failures])
            if number >= self._policy.coarse_rounds and len(contenders) < 2:
                break
        if contenders:
            self._incumbent = min(contenders, key=_level)
            self.best = summarise(self._incumbent.config, self._incumbent.samples_us)
        return field.outcomes(subjects)

    def final(self, subjects: Sequence[Subject]) -> list[Outcome]:
        """Time finalists afresh: samples of trials do not count.

        Each gets `fine_rounds` samples. As long as one is not steady then, all get more, up to
        three times as many, since samples taken at other clocks do not compare.

        Returns:
            The outcome of each, in order.
        """
        policy = self._policy
        field = _Field(self._clock, self._random)
        field.enter(subjects)
        share_us = policy.entrant_us * _FINAL_SHARE
        for number in range(3 * policy.fine_rounds):
            unfinished = [s for s in field.running if not _timed_for(s, share_us, ENOUGH)]
            if number >= policy.fine_rounds and all(
                summarise(s.config, s.samples_us).spread <= policy.spread for s in unfinished
            ):
                break
            field.round(unfinished)
        return field.outcomes(subjects)

    def _in_contention(self, contenders: Sequence[Subject]) -> list[Subject]:
        """Return those that may still be the best; all have had the same rounds."""
        if not contenders:
            return []
        leader = min(contenders, key=_level)
        level = _level(leader)
        near = [s for s in contenders if not self._far(s, level)]
        doubtful = [s for s in near if _level(s) > level * (1 + self._policy.near_tie)]
        rows = [s.samples_us for s in doubtful]
        verdicts = slower(rows, leader.samples_us, self._policy.significance)
        beaten = {s for s, is_slower in zip(doubtful, verdicts, strict=True) if is_slower}
        return [s for s in near if s not in beaten]

    def _far(self, subject: Subject, level: float) -> bool:
        """Return whether even the fastest sample is out of reach of the best median."""
        policy, samples = self._policy, len(subject.samples_us)
        if samples >= policy.coarse_rounds or _timed_for(subject, policy.entrant_us, 2):
            factor = policy.contention
        elif samples >= 2:
            factor = policy.hopeless
        else:
            factor = max(policy.hopeless, _LONG_FACTOR, _LONG_US / level)
        return min(subject.samples_us) > factor * level


class _Field:
    """Holds the subjects of one trial or final: those that run and those that failed."""

    def __init__(self, clock: Clock, order: random.Random) -> None:
        self.running: list[Subject] = []
        self.failures: dict[Subject, Failure] = {}
        self._clock = clock
        self._order = order

    def enter(self, subjects: Iterable[Subject]) -> None:
        """Warm up each one that is not in yet, and forget its earlier samples."""
        known = {*self.running, *self.failures}
        for subject in dict.fromkeys(subjects):
            if subject in known:
                continue
            subject.samples_us.clear()
            failure = self._clock.warm_up(subject)
            if failure is None:
                self.running.append(subject)
            else:
                self.failures[subject] = failure

    def round(self, subjects: Iterable[Subject]) -> None:
        """Take one more sample of each, in a new random order."""
        order = list(subjects)
        self._order.shuffle(order)
        if not order:
            return
        sampled = guarded("launch", lambda: self._clock.round(order))
        if isinstance(sampled, Failure):
            # Running each alone shows which one failed.
            for subject in order:
                self._alone(subject)
            return
        for subject, sample in zip(order, sampled, strict=True):
            subject.samples_us.append(sample)

    def outcomes(self, subjects: Sequence[Subject]) -> list[Outcome]:
        """Return the outcome of each."""
        return [
            (s.config, self.failures.get(s) or summarise(s.config, s.samples_us)) for s in subjects
        ]

    def _alone(self, subject: Subject) -> None:
        sampled = guarded("launch", lambda: self._clock.round([subject]))
        if isinstance(sampled, Failure):
            self.running.remove(subject)
            self.failures[subject] = sampled
        else:
            subject.samples_us.extend(sampled)


def unsteady(statistics: SampleStatistics | None, policy: TimingPolicy) -> str:
    """Return in words that the relative standard deviation stays too high; "" if it does not."""
    if statistics is None or statistics.rsd is None or statistics.rsd <= policy.rsd:
        return ""
    rsd, limit = f"{statistics.rsd:.1%}", f"{policy.rsd:.0%}"
    return f"RSD {rsd} of {statistics.samples} samples stays above {limit}"


def winner(
    finalists: Sequence[Measurement],
    cost: Callable[[Config], tuple[float, float]],
    policy: TimingPolicy,
) -> Measurement:
    """Return the fastest finalist, or the cheapest of those that are as good.

    A finalist is as good if it is within `near_tie` of the best median and not significantly slower
    (one-sided Mann-Whitney at `significance`).

    Args:
        finalists: from one final, so that their samples compare.
        cost: registers a thread and shared memory in bytes of a config; less wins.
        policy: what counts as a tie.

    Raises:
        MeasureError: there are no finalists.
    """
    if not finalists:
        raise MeasureError("no finalist could be timed; see the failures of the run")
    best = min(finalists, key=lambda m: m.median_us)
    close = [m for m in finalists if m.median_us <= best.median_us * (1 + policy.near_tie)]
    verdicts = slower([m.samples_us for m in close], best.samples_us, policy.significance)
    tied = [m for m, is_slower in zip(close, verdicts, strict=True) if not is_slower]
    return min(tied, key=lambda m: (*cost(m.config), m.median_us))


def _level(subject: Subject) -> float:
    """Return the time that ranks a subject during a trial."""
    return median(subject.samples_us)


def _timed_for(subject: Subject, enough_us: float, samples: int) -> bool:
    """Return whether a subject has had its device time, and at least `samples` samples."""
    return len(subject.samples_us) >= samples and sum(subject.samples_us) >= enough_us
