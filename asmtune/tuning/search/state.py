"""`SearchState`: what a search knows so far."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement
from asmtune.core.records.verdicts import Verdict

PRIOR_GAIN: Final = 0.1
"""Gain that counts as expected and as seen before any was: how slowly `SearchState.trust` falls."""


class SearchState:
    """Knowledge of a space's configs: predicted, being compiled, compiled, timed, failed.

    Args:
        initial: a verdict on each config before compiling, in the space's order; with the
            features of its sketch, where sketches were made. Configs dropped by a rule are
            excluded. Configs whose sketch cannot be parsed stay in.
        default: always compiled and timed first, whatever is known of it, if it is a candidate.
        seeds: configs that were good on other shapes: compiled and timed first.
        clock: seconds, of a clock that never goes back.
        later: waits for better verdicts before compiling, of a space that was ranked by a sample;
            None if they never come.

    Attributes:
        initial, default, later: as given; verdicts by config.
        configs: the candidates, in the space's order.
        verdicts: verdicts on compiled configs, by config.
        pending: configs being compiled.
        timings: microseconds by config.
        failures: failures of compiles and trials by config.
        compiles, trials: configs compiled, and tried on the GPU, by this search.
    """

    def __init__(
        self,
        initial: Sequence[Verdict],
        default: Config,
        seeds: Sequence[Config] = (),
        clock: Callable[[], float] = time.monotonic,
        later: Callable[[], Sequence[Verdict]] | None = None,
    ) -> None:
        self.initial = {verdict.config: verdict for verdict in initial}
        self.configs = [config for config, v in self.initial.items() if _is_candidate(v)]
        self.default, self.later = default, later
        self.verdicts: dict[Config, Verdict] = {}
        self.pending: dict[Config, None] = {}
        candidates = set(self.configs)
        self.timings: dict[Config, float] = {}
        self.failures: dict[Config, Failure] = {}
        self.compiles = self.trials = 0
        self._seeds = [config for config in seeds if config in candidates]
        self._clock = clock
        self._began = clock()
        self._first_us: float | None = None
        self._of_pending = self._of_compiled = self._expected = 0.0

    @property
    def seconds(self) -> float:
        """Return the seconds since the state was made."""
        return self._clock() - self._began

    @property
    def best_us(self) -> float | None:
        """Return the least time so far."""
        return min(self.timings.values(), default=None)

    @property
    def trust(self) -> float:
        """Return the share of an expected gain that may be hoped for, by those before: 0 to 1.

        It is the gain since the first was expected over the sum of those expected of batches that
        were timed. Times that a unit of the machine bounds have a floor, of which a Gaussian
        process knows nothing: it goes on expecting gains.
        """
        if self._first_us is None or self.best_us is None:
            return 1.0
        seen = math.log(self._first_us / self.best_us)
        return min(1.0, (PRIOR_GAIN + seen) / (PRIOR_GAIN + self._expected))

    def fastest(self, count: int) -> list[Config]:
        """Return the fastest timed configs in order; equal ones in the order of timing."""
        return sorted(self.timings, key=lambda config: self.timings[config])[:count]

    def opening(self) -> list[Config]:
        """Return the start of the first batch: the default and the seeds."""
        left = set(self.configs)
        return [config for config in dict.fromkeys((self.default, *self._seeds)) if config in left]

    def open(self) -> list[Config]:
        """Return configs that are neither compiled nor known to run or to fail, in order."""
        tried = (self.verdicts, self.pending, self.timings, self.failures)
        return [c for c in self.configs if not any(c in configs for configs in tried)]

    def ready(self) -> list[Config]:
        """Return compiled configs that can run and are not timed yet."""
        return [c for c in self.verdicts if c not in self.timings and c not in self.failures]

    def due(self) -> list[Config]:
        """Return those of `ready` that are timed in any case: default and seeds."""
        ready = set(self.ready())
        return [c for c in dict.fromkeys((self.default, *self._seeds)) if c in ready]

    def finalists(self, count: int) -> tuple[Verdict, ...]:
        """Return the fastest compiled configs, and the default if it ran, fastest first."""
        able = [config for config in self.fastest(len(self.timings)) if config in self.verdicts]
        chosen = [c for rank, c in enumerate(able) if rank < count or c == self.default]
        return tuple(self.verdicts[config] for config in chosen)

    def rank_again(self) -> bool:
        """Take in the later verdicts; return whether there were any to wait for."""
        if self.later is None:
            return False
        verdicts, self.later = self.later(), None
        self.initial = {**self.initial, **{verdict.config: verdict for verdict in verdicts}}
        tried = (self.verdicts, self.pending, self.timings, self.failures)
        self.configs = [
            config
            for config in self.configs
            if _is_candidate(self.initial[config]) or any(config in configs for configs in tried)
        ]
        return True

    def begin_batch(self, configs: Iterable[Config], gain: float | None = None) -> None:
        """Note configs that are being compiled, and the gain that is expected of them, if known."""
        if gain is not None:
            self._of_pending, self._first_us = gain, self._first_us or self.best_us
        added = dict.fromkeys(configs)
        self.pending.update(added)
        self.compiles += len(added)

    def add_verdicts(self, verdicts: Iterable[Verdict], *, more: bool = False) -> None:
        """Add a compiled batch; with `more`, a part of it."""
        for verdict in verdicts:
            config = verdict.config
            self.verdicts[config] = verdict
            if not verdict.kept:
                self.failures[config] = _failure(verdict)
        if more:
            for config in self.verdicts.keys() & self.pending.keys():
                del self.pending[config]
            return
        for config in self.pending.keys() - self.verdicts.keys():
            self.failures[config] = Failure("compile", "lost", "the compiler gave no verdict")
        self.pending.clear()
        self._of_compiled, self._of_pending = self._of_compiled + self._of_pending, 0.0

    def add_outcomes(self, outcomes: Iterable[tuple[Config, Measurement | Failure]]) -> None:
        """Add outcomes of configs that were tried on the GPU."""
        self._expected, self._of_compiled = self._expected + self._of_compiled, 0.0
        for config, outcome in outcomes:
            self.trials += 1
            if isinstance(outcome, Failure):
                self.failures[config] = outcome
            else:
                self.timings[config] = outcome.median_us


def _is_candidate(verdict: Verdict) -> bool:
    return verdict.kept or (verdict.failure is not None and verdict.failure.stage == "read")


def _failure(verdict: Verdict) -> Failure:
    if verdict.failure is not None:
        return verdict.failure
    if not verdict.reasons:
        return Failure(verdict.dropped_at or "rules", "rules", "dropped without a reason")
    return Failure("rules", verdict.reasons[0].rule, verdict.reasons[0].text)
