"""Sketch a part of a large space in rounds, each chosen by what the sketches so far tell.

Features of the others are carried over from the sketched configs, so that the same scorers rank
both. 25 recorded tasks with 128 to 674 configs, of which a quarter was sketched, kept 0.948 of the
best speed at the first pick and 0.989 with ten (`learned`; all sketched 0.970 and 0.993).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.occupancy import occupancy
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.verdicts import Features, Reason, Unlisted, Verdict
from asmtune.core.space.table import SpaceTable
from asmtune.predict.prune.front import Outcomes, ProblemAnalysis
from asmtune.predict.prune.places import Places, Row
from asmtune.predict.prune.ranking import Ranker
from asmtune.predict.score.keep import AIM, Keep, table_of
from asmtune.predict.score.roofline import predicted_us
from asmtune.predict.score.scorer import Candidate
from asmtune.predict.score.vectors import features_read

SKETCHES: Final = 100
"""Least configs of a large space that are sketched."""

FOR_A_COMPILE: Final = 3
"""Least sketches for each config that is compiled."""

WORTH_IT: Final = 1.5
"""Configs over sketches from which sketching a part saves enough."""

GO_ON: Final = 20_000
"""Configs of a larger space that go on to sketches and to a search's model: a hundred times as many
as are sketched. One takes 8 KB."""

ROUNDS: Final = (0.4, 0.7, 1.0)
"""Shares of the sketches that are made until each round ends. With two rounds, of 0.5 and 1, ten
configs kept 0.02 to 0.03 less where a tenth was sketched."""

SPREAD: Final = 24
"""Configs of the first round that lie far apart, at most half of it; the others are drawn. All
drawn at random, the first pick kept 0.02 to 0.05 less."""

NEAR: Final = 1.5
"""Distance, in doublings of axes, over which a difference holds to a third."""

BY_AXIS: Final = 0.1
BY_PLACE: Final = 0.1
BY_LINE: Final = 0.5
NOISE: Final = 0.02
"""Variances of a feature's logarithm: by each value of an axis, by place, by a doubling of an axis,
and what is left."""


@dataclass(frozen=True)
class Sketched:
    """The sketched part of a space, and the rest.

    Attributes:
        verdicts: on the configs sketched, and on those that a rule refused before.
        left: on the others, best first.
        notes: for a report.
        unlisted: counts of further ones, which `thinned` left out.
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


def thinned(
    configs: Sequence[Config], most: int = 0, wanted: Iterable[Config] = ()
) -> Sequence[Config]:
    """Draw the configs of a very large space that go on, in its order; all of a smaller one.

    `GO_ON` or 1.5 times `most` are drawn. The first, those that are `wanted` and one with each
    value of an axis go on besides.
    """
    most = max(GO_ON, math.ceil(WORTH_IT * most))
    if len(configs) <= most:
        return configs
    points = SpaceTable.of(configs)
    drawn = np.random.default_rng(0).choice(len(points), most, replace=False)
    found = [place for config in wanted if (place := points.find(config)) is not None]
    firsts = (points.groups([name])[0] for name in points.values)
    examples = [place for first in firsts for place in first[:: -(-len(first) // most)]]
    return points.take(np.unique([0, *found, *examples, *drawn]))


class SketchRounds:
    """Sketches `most` configs of a space, in rounds.

    The first round shows each value of each axis; the next ones take what ranks best by the
    features that are carried over. The first config is in the first round, and so are those with
    hand-edited IR, of which no other tells anything.
    """

    def __init__(
        self,
        front: ProblemAnalysis,
        configs: Sequence[Config],
        ranker: Ranker,
        most: int,
        known: Outcomes,
        shares: Sequence[float] = ROUNDS,
    ) -> None:
        self._by_rules = [front.by_rules(config) for config in configs]
        self._able = able = [verdict.config for verdict in self._by_rules if verdict.kept]
        self._ranker, self._most, self._known = ranker, most, known
        self._shares = list(shares) if able else []
        self._carried = _Carried(able, front, ranker.target)
        self._order = _first_order(self._carried.places, able, math.ceil(most * shares[0]))
        self._features: list[Features | None] = [None] * len(able)
        self._done: dict[int, Verdict] = {}

    def advance(self, front: ProblemAnalysis) -> bool:
        """Sketch the configs of the next round; return whether there was one."""
        if not self._shares:
            return False
        room = min(math.ceil(self._most * self._shares.pop(0)), len(self._able)) - len(self._done)
        places = [place for place in self._order if place not in self._done][: max(0, room)]
        able = self._able
        verdicts = front.verdicts([able[place] for place in places], "sketch", self._known)
        by_config = {verdict.config: verdict for verdict in verdicts}
        # Fewer come back where another thread has stopped the compiles.
        self._done |= {p: by_config[able[p]] for p in places if able[p] in by_config}
        self._rank()
        if not self._shares and self._most < len(able) and self._features[0] is None:
            self._most, self._shares = len(able), [1.0]  # nothing could be read: all may fail alike
        return True

    def _rank(self) -> None:
        known = {p: v.features for p, v in self._done.items() if v.features is not None}
        if not known:
            return
        target = self._ranker.target
        carried = self._carried.features(known)
        self._features = [known.get(place, own) for place, own in enumerate(carried)]
        candidates = [
            Candidate(config, target, features=own)
            for config, own in zip(self._able, self._features, strict=True)
        ]
        scores = np.array(self._ranker.scorer.score(candidates))
        # The time of one that seems not to fit would be one of a program that fits.
        fits = np.array([own["shared_bytes"] <= target.shared_bytes_per_block for own in carried])
        self._order = np.lexsort([-scores, ~fits]).tolist()

    def sketched(self) -> Sketched:
        """Return the configs sketched so far, and the others best first."""
        refused = [verdict for verdict in self._by_rules if not verdict.kept]
        count = len(self._done)
        left = [
            _unsketched(self._verdict(place), rank, count)
            for rank, place in enumerate(self._order, 1)
            if place not in self._done
        ]
        return Sketched([*refused, *self._done.values()], left)

    def candidates(self) -> list[Verdict]:
        """Return a verdict on each config, in order; those not sketched stay candidates."""
        made = (
            self._done[place] if place in self._done else self._verdict(place)
            for place in range(len(self._able))
        )
        return [next(made) if verdict.kept else verdict for verdict in self._by_rules]

    def _verdict(self, place: int) -> Verdict:
        """Return a verdict by carried features; without any where it seems not to fit an SM."""
        features, target = self._features[place], self._ranker.target
        if features is None or features["shared_bytes"] > target.shared_bytes_per_block:
            return Verdict(self._able[place], kept=True)
        us = round(float(predicted_us(features, target)), 2)
        return Verdict(self._able[place], kept=True, features=features, predicted_us=us)


def sketch_part(
    front: ProblemAnalysis, configs: Sequence[Config], ranker: Ranker, most: int, known: Outcomes
) -> Sketched:
    """Sketch `most` configs of a space in rounds; the first in any case."""
    rounds = SketchRounds(front, configs, ranker, most, known)
    while rounds.advance(front):
        pass
    return rounds.sketched()


def _first_order(places: Places, able: Sequence[Config], room: int) -> list[int]:
    """Return the order in which a first round takes configs before anything is known."""
    edited = (place for place, config in enumerate(able) if config.ir_override is not None)
    apart = places.sample(min(room // 2, SPREAD)) if able else []
    drawn = np.random.default_rng(0).permutation(len(able)).tolist()
    return list(dict.fromkeys([*([0] if able else []), *edited, *apart, *drawn]))


class _Carried:
    """Carries features over from some configs to all, by a Gaussian process of their logarithms.

    Each is the sum of a line along every axis, a step for each of its values, and what
    neighbours share.
    """

    def __init__(self, able: Sequence[Config], front: ProblemAnalysis, target: Target) -> None:
        self._target, self._able = target, able
        points = SpaceTable.of(able)
        values = {**points.values, "maxnreg": [cap or 256 for cap in points.values["maxnreg"]]}
        names = [*points.tile_names, "num_warps", "num_stages", "maxnreg"]
        columns = {name: points.columns[name] for name in names}
        self.places = Places(values, columns, len(able))
        grids = [front.grid(config) for config in able]
        self._programs = np.array(
            [math.nan if isinstance(grid, Failure) else float(math.prod(grid)) for grid in grids]
        )
        self._names = sorted({*features_read(), "instructions"})

    def features(self, known: dict[int, Features]) -> list[Features]:
        """Return features of all configs from those of some, by place."""
        places, own = list(known), self.places
        logs = np.log1p([[one[name] for name in self._names] for one in known.values()])
        local = np.exp(-np.stack([own.distances(place) for place in places], axis=1) / NEAR)
        lines = own.lines - own.lines[places].mean(axis=0)
        alike = 1.0 + BY_AXIS * own.alike(places) + BY_PLACE * local
        alike += BY_LINE * lines @ lines[places].T
        mean = logs.mean(axis=0)
        weights = np.linalg.solve(alike[places] + NOISE * np.eye(len(places)), logs - mean)
        carried = np.expm1(np.maximum(mean + alike @ weights, 0.0))
        columns = dict(zip(self._names, carried.T, strict=True))
        columns |= self._exact(columns)
        rows = np.stack([*columns.values()], axis=1).tolist()
        return [Features(dict(zip(columns, row, strict=True))) for row in rows]

    def _exact(self, columns: dict[str, NDArray[np.float64]]) -> dict[str, Row]:
        """Return the launch's own numbers, and how its programs fill the machine."""
        target, most = self._target, self._target.max_registers_per_thread
        fits = [
            occupancy(target, config.num_warps, max(1, min(most, round(registers))), round(shared))
            for config, registers, shared in zip(
                self._able, columns["regs_per_thread"], columns["shared_bytes"], strict=True
            )
        ]
        programs = np.where(np.isnan(self._programs), columns["programs"], self._programs)
        resident = np.array([float(one.programs_per_sm) for one in fits])
        waves = programs / (np.maximum(1.0, resident) * target.sms)
        return {
            "num_warps": np.array([float(config.num_warps) for config in self._able]),
            "num_stages": np.array([float(config.num_stages) for config in self._able]),
            "programs": programs,
            "programs_per_sm": resident,
            "occupancy": np.array([one.fraction for one in fits]),
            "waves": waves,
            "tail": np.ceil(waves) - waves,
        }


def _unsketched(verdict: Verdict, rank: int, most: int) -> Verdict:
    time = "too large" if verdict.predicted_us is None else f"at {verdict.predicted_us:,} us"
    reason = Reason("estimated_only", f"rank {rank} by {most} sketches of others, {time}")
    return replace(verdict, kept=False, dropped_at="estimate", reasons=(reason,), features=None)
