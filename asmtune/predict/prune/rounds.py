"""Sketch the best of a ranking by arithmetic, in rounds that correct the ranking of the rest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from asmtune.core.records.verdicts import Reason, Unlisted, Verdict
from asmtune.core.space.table import SpaceTable
from asmtune.predict.features.tile.interpolate import Places
from asmtune.predict.prune.front import Outcomes, ProblemAnalysis
from asmtune.predict.prune.ranking import Ranker
from asmtune.predict.score.keep import AIM, Keep, table_of
from asmtune.predict.score.scorer import Candidate

SKETCHES: Final = 100
"""Least configs of a large space that are sketched, by the rank that the arithmetic gives."""

FOR_A_COMPILE: Final = 3
"""Least sketches for each config that is compiled."""

WORTH_IT: Final = 1.5
"""Configs over sketches from which the arithmetic is worth its time: a dozen sketches."""

ROUNDS: Final = (0.4, 0.7, 1.0)
"""Shares of the sketches that are made until each round ends; the next one is corrected by them."""

SPREAD: Final = 0.2
"""Share of the first round that is taken evenly from the whole ranking, to learn the error."""

NEAR: Final = 1.5
"""Distance, in doublings of axes, over which an error that was seen still holds to a third."""

BY_AXIS: Final = 0.1
BY_PLACE: Final = 0.1
NOISE: Final = 0.02
"""Variances of the logarithm of an error: by each value of an axis, by place, and what is left."""


@dataclass(frozen=True)
class Sketched:
    """The sketched part of a space, and the rest.

    Attributes:
        verdicts: on the configs sketched, and on those that a rule refused before.
        left: on those that the arithmetic alone ranked, best first; with estimated features where
            they seem to fit an SM.
        notes: for a report.
        unlisted: counts of further ones, which `narrowed` left out.
    """

    verdicts: list[Verdict]
    left: list[Verdict]
    notes: list[str] = field(default_factory=list)
    unlisted: tuple[Unlisted, ...] = ()


def sketches_for(budget: Keep, scorer: str, count: int) -> int:
    """Return how many of `count` configs are sketched for a budget of compiles."""
    table = table_of(scorer, "sketch") if budget.is_auto else None
    share = math.ceil(count * (budget.percent or 0) / 100)
    compiles = int(table.cut_for(AIM).count) if table else budget.count or share
    return max(SKETCHES, FOR_A_COMPILE * compiles)


class SketchRounds:
    """Sketches the `most` that rank best by their estimated features, in rounds.

    After each the estimates of the others are corrected by how far those of similar configs were
    off, so that a bias of the arithmetic does not decide. The first config is in the first round.
    """

    def __init__(
        self,
        estimates: Sequence[Verdict],
        ranker: Ranker,
        most: int,
        known: Outcomes,
        shares: Sequence[float] = ROUNDS,
    ) -> None:
        self._estimates, self._most, self._known = estimates, most, known
        self._able = able = [verdict for verdict in estimates if verdict.kept]
        self._shares = list(shares) if able else []
        candidates = [Candidate(v.config, ranker.target, features=v.features) for v in able]
        self._scores = np.array(ranker.scorer.score(candidates)) if able else np.zeros(0)
        self._error = _Error(able, ranker.target.shared_bytes_per_block) if able else None
        self._done: dict[int, Verdict] = {}

    def advance(self, front: ProblemAnalysis) -> bool:
        """Sketch the configs of the next round; return whether there was one."""
        if self._error is None or not self._shares:
            return False
        able, done = self._able, self._done
        order = np.argsort(-self._error.corrected(self._scores), kind="stable")
        ranks = [int(place) for place in order if int(place) not in done]
        room = min(math.ceil(self._most * self._shares.pop(0)), len(able)) - len(done)
        chosen = dict.fromkeys([] if done else [0])
        if not done:
            even = max(1, int(room * SPREAD))
            chosen |= dict.fromkeys(ranks[i * len(ranks) // even] for i in range(even))
        places = list(dict.fromkeys([*chosen, *ranks]))[: max(0, room)]
        verdicts = front.verdicts([able[place].config for place in places], "sketch", self._known)
        by_config = {verdict.config: verdict for verdict in verdicts}
        # Fewer come back where another thread has stopped the compiles.
        done |= {p: by_config[able[p].config] for p in places if able[p].config in by_config}
        self._error.learn(done)
        return True

    def sketched(self) -> Sketched:
        """Return the configs sketched so far, and the others with corrected estimates."""
        if self._error is None:
            return Sketched(list(self._estimates), [])
        order = np.argsort(-self._error.corrected(self._scores), kind="stable")
        left = []
        for rank, place in enumerate(int(place) for place in order):
            if place not in self._done:
                left.append(_unsketched(self._error.verdict(place), rank + 1, len(self._done)))
        refused = [verdict for verdict in self._estimates if not verdict.kept]
        return Sketched([*refused, *self._done.values()], left)

    def candidates(self) -> list[Verdict]:
        """Return a verdict on each config, in order; those not sketched stay candidates."""
        sketched = self.sketched()
        left = [replace(v, kept=True, dropped_at=None, reasons=()) for v in sketched.left]
        by_config = {verdict.config: verdict for verdict in (*sketched.verdicts, *left)}
        return [by_config[verdict.config] for verdict in self._estimates]


def sketch_best(
    front: ProblemAnalysis, estimates: Sequence[Verdict], ranker: Ranker, most: int, known: Outcomes
) -> Sketched:
    """Sketch the `most` that rank best by their estimated features; the first in any case."""
    rounds = SketchRounds(estimates, ranker, most, known)
    while rounds.advance(front):
        pass
    return rounds.sketched()


class _Error:
    """The error of the arithmetic, as seen on the configs that were sketched."""

    def __init__(self, able: Sequence[Verdict], limit: int) -> None:
        self._able, self._limit = able, limit
        self._times = np.log([v.predicted_us or 1.0 for v in able])
        self._shared = np.array([v.features["shared_bytes"] if v.features else 0.0 for v in able])
        points = SpaceTable.of([verdict.config for verdict in able])
        values = {**points.values, "maxnreg": [cap or 256 for cap in points.values["maxnreg"]]}
        names = [*points.tile_names, "num_warps", "num_stages", "maxnreg"]
        columns = {name: points.columns[name] for name in names}
        self._places = Places(values, columns, len(able))
        self._late = np.zeros(len(able))
        self._larger = np.zeros(len(able))

    def learn(self, done: Mapping[int, Verdict]) -> None:
        """Estimate the error of every config from those of the sketched ones.

        A Gaussian process: one error of all, one of each value of an axis, and a local one.
        """
        known = [place for place, verdict in done.items() if verdict.predicted_us]
        if not known:
            return
        verdicts = [done[place] for place in known]
        late = np.log([verdict.predicted_us or 1.0 for verdict in verdicts]) - self._times[known]
        shared = [v.features["shared_bytes"] if v.features else 0.0 for v in verdicts]
        larger = np.log((np.array(shared) + 1.0) / (self._shared[known] + 1.0))
        local = np.exp(-np.stack([self._places.distances(place) for place in known], axis=1) / NEAR)
        alike = 1.0 + BY_AXIS * self._places.alike(known) + BY_PLACE * local
        weights = np.linalg.solve(
            alike[known] + NOISE * np.eye(len(known)), np.stack([late, larger], axis=1)
        )
        self._late, self._larger = (alike @ weights).T

    def corrected(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return scores less the error, those that seem not to fit behind all others."""
        fits = self._shared * np.exp(self._larger) <= self._limit
        own: NDArray[np.float64] = np.where(np.isfinite(scores), scores, -1e6) - self._late
        return np.where(fits, own, own - 1e3)

    def verdict(self, place: int) -> Verdict:
        """Return an estimated verdict with its time corrected; without features if it is too big.

        Its time would be one of a program that fits.
        """
        us = math.exp(self._times[place] + self._late[place])
        fits = self._shared[place] * math.exp(self._larger[place]) <= self._limit
        features = self._able[place].features if fits else None
        return replace(self._able[place], predicted_us=round(us, 2), features=features)


def _unsketched(verdict: Verdict, rank: int, most: int) -> Verdict:
    text = f"rank {rank} by tile arithmetic at {verdict.predicted_us:,} us, {most} are sketched"
    reason = Reason("estimated_only", text)
    return replace(verdict, kept=False, dropped_at="estimate", reasons=(reason,))
