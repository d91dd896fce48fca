"""The funnel's first stage: rank every config by the arithmetic of its tile, without TTGIR."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from asmtune.base.deadline import paused_collection
from asmtune.base.errors import ParseError
from asmtune.core.config import Config
from asmtune.core.problem import is_gluon
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.verdicts import Features, Reason, Selection, Verdict
from asmtune.ir.ttir.work import Work
from asmtune.predict.features.tile.demands import Options
from asmtune.predict.features.tile.estimate import estimate
from asmtune.predict.features.tile.facts import tile_facts
from asmtune.predict.features.tile.forms import TileFacts
from asmtune.predict.features.tile.interpolate import Places, Tile, carried_over
from asmtune.predict.prune.front import Front, Outcomes, failed
from asmtune.predict.prune.ranking import Ranker, Shortlist, tile_of
from asmtune.predict.score.keep import AIM, Keep, table_of
from asmtune.predict.score.roofline import predict
from asmtune.predict.score.scorer import Candidate

MOST_TILES: Final = 24
"""Tiles whose TTIR is made; other tiles take their numbers from these. One takes 15 to 30 ms."""

ALL_TILES: Final = 100
"""Tiles that are all lowered where launches of a sample do different things to arguments: 2 s."""


@dataclass(frozen=True)
class Unread:
    """Reason why the arithmetic cannot read a kernel."""

    reason: str


GLUON_NOTE: Final = (
    "a Gluon kernel has no TTIR: its front end runs for every config, and none is estimated by "
    "tile arithmetic"
)
"""Note of reports and runs on a kernel whose layouts are its own."""

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
    """

    verdicts: list[Verdict]
    left: list[Verdict]
    notes: list[str] = field(default_factory=list)


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

    def advance(self, front: Front) -> bool:
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
    front: Front, estimates: Sequence[Verdict], ranker: Ranker, most: int, known: Outcomes
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
        self._places = Places([_axes(verdict.config) for verdict in able])
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
        steps = self._places.steps
        alike = 1.0 + BY_AXIS * steps @ steps[known].T + BY_PLACE * local
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


def _axes(config: Config) -> Tile:
    options = {
        "num_warps": config.num_warps,
        "num_stages": config.num_stages,
        "maxnreg": config.maxnreg or 256,
    }
    return (*tile_of(config), *options.items())


def _unsketched(verdict: Verdict, rank: int, most: int) -> Verdict:
    text = f"rank {rank} by tile arithmetic at {verdict.predicted_us:,} us, {most} are sketched"
    reason = Reason("estimated_only", text)
    return replace(verdict, kept=False, dropped_at="estimate", reasons=(reason,))


@paused_collection()
def estimated(front: Front, configs: Sequence[Config]) -> list[Verdict] | Unread:
    """Return a verdict with estimated features on each config, or why there can be none.

    Configs that the rules of the config alone refuse are dropped; nothing else is.
    """
    verdicts = [front.by_rules(config) for config in configs]
    left = [place for place, verdict in enumerate(verdicts) if verdict.kept]
    if reason := _unreadable(front, [configs[place] for place in left]):
        return Unread(reason)
    tiles: dict[Tile, list[int]] = {}
    for place in left:
        tiles.setdefault(tile_of(configs[place]), []).append(place)
    places = Places(list(tiles))
    members = list(tiles.values())
    facts: dict[int, TileFacts] = {}
    reason = ""
    for tile in places.sample(MOST_TILES):
        read = _facts(front, configs[members[tile][0]])
        if isinstance(read, TileFacts):
            facts[tile] = read
        else:
            reason = read
    if not facts:
        return Unread(reason)
    if options := front.lowering.options_read:
        return Unread(f"its TTIR depends on {', '.join(sorted(options))}")
    target = front.target
    for structure, (own, numbers) in carried_over(places, facts).items():
        chosen = [place for tile in own for place in members[tile]]
        rows = np.repeat(np.arange(len(own)), [len(members[tile]) for tile in own])
        columns = estimate(structure, numbers[rows], _options(front, configs, chosen), target)
        table = np.stack(list(columns.values()), axis=1).tolist()
        for place, row in zip(chosen, table, strict=True):
            features = Features(dict(zip(columns, row, strict=True)))
            verdicts[place] = _verdict(configs[place], features, front)
    return verdicts


def _unreadable(front: Front, configs: Sequence[Config]) -> str:
    """Return why no config can be estimated, in words; "" if nothing speaks against it."""
    if is_gluon(front.problem.kernel):
        return GLUON_NOTE
    if any(config.ir_override is not None for config in configs):
        return "a config has hand-edited IR"
    if any(isinstance(front.grid(config), Failure) for config in configs):
        return "a grid cannot be evaluated before its config's pre_hook"
    return "" if configs else "no config is left"


@paused_collection()
def sampled_works(front: Front, configs: Sequence[Config], *, every: bool = False) -> list[Work]:
    """Return the works of configs that are lowered already, and of one config a tile.

    Of many tiles a sample is lowered, which shows each value of each axis. With `every`, a sample
    is enough only of more than `ALL_TILES`.
    """
    tiles: dict[Tile, Config] = {}
    for config in configs:
        tiles.setdefault(tile_of(config), config)
    chosen = list(tiles.values())
    if len(tiles) > (ALL_TILES if every else MOST_TILES):
        chosen = [chosen[place] for place in Places(list(tiles)).sample(MOST_TILES)]
    return front.works([*front.analysed(configs), *chosen])


def by_arithmetic(front: Front, configs: Sequence[Config]) -> Sketched:
    """Estimate all configs, the first the default, for a target whose TTGIR no sketch reads.

    Those that seem to take too much shared memory are dropped, but for the default, if others fit.
    """
    estimates = estimated(front, configs)
    if isinstance(estimates, Unread):
        note = f"all were compiled, since tile arithmetic cannot rank them: {estimates.reason}"
        unread = Failure("read", "parse", estimates.reason)  # compiled whatever the budget is
        return Sketched([failed(config, unread) for config in configs], [], [note])
    limit = front.target.shared_bytes_per_block
    fits = [v.features is None or v.features["shared_bytes"] <= limit for v in estimates]
    verdicts = [
        verdict if not any(fits[1:]) or fits[place] or not place else _too_large(verdict, limit)
        for place, verdict in enumerate(estimates)
    ]
    note = f"chosen by tile arithmetic: no sketch reads the TTGIR of {front.target.arch}"
    return Sketched(verdicts, [], [note])


def _too_large(verdict: Verdict, limit: int) -> Verdict:
    used = verdict.features["shared_bytes"] if verdict.features else 0.0
    text = f"about {used:,.0f} bytes of shared memory by tile arithmetic, over {limit:,} a program"
    reason = Reason("estimated_only", text)
    return replace(verdict, kept=False, dropped_at="estimate", reasons=(reason,), features=None)


def as_estimated(chosen: Shortlist) -> Shortlist:
    """Say of a shortlist that tile arithmetic chose it, whose error was never measured."""
    dropped = tuple(
        replace(v, dropped_at="estimate", reasons=(Reason("estimated_only", v.reasons[0].text),))
        if v.dropped_at == "sketch"
        else v
        for v in chosen.dropped
    )
    selection = chosen.selection and Selection(chosen.selection.keep, chosen.selection.ranks)
    return replace(chosen, dropped=dropped, selection=selection)


def _facts(front: Front, config: Config) -> TileFacts | str:
    work = front.work(config)
    if isinstance(work, Failure):
        return str(work)
    kernel = front.kernel(config)
    if kernel is None:
        return "its TTIR cannot be read"
    try:
        return tile_facts(kernel, work)
    except (ParseError, LookupError, ValueError) as error:
        return f"its TTIR cannot be read: {error}"


def _programs(front: Front, config: Config) -> float:
    grid = front.grid(config)
    assert not isinstance(grid, Failure)  # `_unreadable` has looked
    return float(math.prod(grid))


def _options(front: Front, configs: Sequence[Config], chosen: Sequence[int]) -> Options:
    own = [configs[place] for place in chosen]
    return Options(
        np.array([float(config.num_warps) for config in own]),
        np.array([float(config.num_stages) for config in own]),
        np.array([float(config.maxnreg or 0) for config in own]),
        np.array([_programs(front, config) for config in own]),
        np.array([float(config.kwargs.get("matrix_instr_nonkdim", 0)) for config in own]),
    )


def _verdict(config: Config, features: Features, front: Front) -> Verdict:
    prediction = predict(features, front.target)
    return Verdict(
        config,
        kept=True,
        features=features,
        predicted_us=round(prediction.us, 2),
        bottleneck=prediction.bottleneck,
    )
