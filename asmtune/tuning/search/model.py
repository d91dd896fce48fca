"""The strategies by name: `model`, batches of the greatest expected gain, and those without one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Final

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from asmtune.base.errors import InputError
from asmtune.base.text import did_you_mean
from asmtune.core.config import Config
from asmtune.core.records.verdicts import Verdict
from asmtune.predict.score.scorer import Candidate
from asmtune.predict.score.vectors import BASE, base_columns
from asmtune.tuning.search.base import Axes, BatchSizes, Predictor, Proposal, Strategy
from asmtune.tuning.search.state import SearchState
from asmtune.tuning.search.surrogate import Column, Matrix, Mixture, Points

FEATURES_FAR: Final = 1.7
"""Root mean square of the features' distances, each in deviations over the space, that is one
length of the process: that of the greatest likelihood, as the constants of `surrogate`."""

AXES_FAR: Final = 8.0
"""Distance on the axes, each from 0 to 1, that is one length: they tell what no feature shows."""

AXES_ALONE_FAR: Final = 0.75
"""The same where there are no features."""


@dataclass(frozen=True)
class MomentReading:
    """Predictions and features of some configs at one moment; NaN if unknown.

    Attributes:
        slowdown: logarithms of predicted slowdowns.
        columns: `vectors.BASE`, a row a config.
    """

    slowdown: Column
    columns: Matrix

    @classmethod
    def of(cls, verdicts: Sequence[Verdict], predictor: Predictor | None) -> MomentReading:
        """Read verdicts of one moment."""
        slowdown = np.full(len(verdicts), np.nan)
        columns = np.full((len(verdicts), len(BASE)), np.nan)
        rows = [row for row, verdict in enumerate(verdicts) if verdict.features is not None]
        if rows and predictor is not None:
            features = [v.features for v in verdicts if v.features is not None]
            columns[rows] = base_columns(features, predictor.target)
            if predictor.scorer.ranks_before_compiling:
                candidates = [
                    Candidate(verdicts[r].config, predictor.target, features=f)
                    for r, f in zip(rows, features, strict=True)
                ]
                slowdown[rows] = -np.array(predictor.scorer.score(candidates))
        return cls(slowdown, columns)


Reader = Callable[[Sequence[Verdict]], MomentReading]


class ConfigPoints:
    """Points of all configs of a space; what does not change is computed once.

    Args:
        state: gives the space as it is now.
        predictor: without one all are predicted alike, and lie on the axes alone.
        read: reads verdicts of one moment; by default by their features and the predictor.
    """

    def __init__(
        self, state: SearchState, predictor: Predictor | None, read: Reader | None = None
    ) -> None:
        self.configs = tuple(state.configs)
        self._initial = state.initial
        self.row = {config: row for row, config in enumerate(self.configs)}
        self._read = read or partial(MomentReading.of, predictor=predictor)
        self._early = self._read([state.initial[config] for config in self.configs])
        readable = self._early.columns[~np.isnan(self._early.columns).any(axis=1)]
        spread = readable.std(axis=0) if len(readable) else np.zeros(len(BASE))
        self._used = spread > 1e-6
        far = AXES_FAR if self._used.any() else AXES_ALONE_FAR
        self._axes = Axes(self.configs).coordinates(self.configs) / far
        self._middle = readable[:, self._used].mean(axis=0) if len(readable) else 0.0
        self._far = FEATURES_FAR * spread[self._used] * np.sqrt(max(1, self._used.sum()))
        self._last: tuple[int, Points] | None = None

    def is_of(self, state: SearchState) -> bool:
        """Return whether it was made from this state, which was not ranked again since."""
        return self._initial is state.initial

    def points(self, state: SearchState) -> Points:
        """Return the points of all configs, with what is known of them now.

        Made once for each count of verdicts, of which a state only gets more.
        """
        count = len(state.verdicts)
        if self._last is None or self._last[0] != count:
            self._last = count, self._points(state)
        return self._last[1]

    def _points(self, state: SearchState) -> Points:
        rows = np.array([self.row[config] for config in state.verdicts], dtype=np.intp)
        late = self._read(list(state.verdicts.values()))
        columns = self._early.columns.copy()
        columns[rows] = _first_known(late.columns, columns[rows])
        # What has no features lies in the middle.
        features = np.nan_to_num((columns[:, self._used] - self._middle) / self._far)
        places = np.hstack([self._axes, features])
        compiled = np.zeros(len(self.configs), dtype=np.bool_)
        compiled[rows] = True
        predicted = _levelled(self._early.slowdown, rows, late.slowdown)
        return Points(predicted, places, compiled, self._axes.shape[1])


def _levelled(early: Column, rows: NDArray[np.intp], late: Column) -> Column:
    """Merge slowdowns, from 0 up: late ones for `rows`, early ones at their level for the rest."""
    slowdown = early.copy()
    if np.isfinite(apart := late - early[rows]).any():
        slowdown += np.nanmedian(apart)
    slowdown[rows] = _first_known(late, slowdown[rows])
    if not np.isfinite(slowdown).any():
        return np.zeros(len(slowdown))
    slowdown = _first_known(slowdown, np.full(len(slowdown), np.nanmedian(slowdown)))
    return np.asarray(slowdown - slowdown.min())


def _first_known(values: Matrix, others: Matrix) -> Matrix:
    return np.where(np.isnan(values), others, values)


POOL: Final = 256
"""Configs of the greatest expected improvement that a batch is chosen among."""

WORTH_TIMING: Final = 0.02
"""Share of a batch's required gain that is required of one timing: a batch costs more. With 0.05 a
replay of 87 tasks of families kept 0.9987, worst 0.956, in place of 0.9994 and 0.979, for 10%
fewer timings."""


EXPLORED: Final = 0.25
"""Share of a first batch that goes to values of axes which the best predicted configs lack."""


def covering(configs: Sequence[Config], order: Sequence[int], count: int) -> list[int]:
    """Take the first of an order; the last few for values of axes that no other has.

    Only timings of a value show what the scorer misses about it.
    """
    spare = int(EXPLORED * count)
    chosen = list(order[: count - spare])
    values = [{(axis, str(value)) for axis, value in c.to_dict().items()} for c in configs]
    known = set().union(*(values[i] for i in chosen))
    later: list[int] = []
    for i in order[count - spare :]:
        if len(chosen) < count and not values[i] <= known:
            chosen.append(i)
            known |= values[i]
        else:
            later.append(i)
    return [*chosen, *later][:count]


@dataclass(frozen=True)
class _View:
    """The model's view of the space; `surrogate` is None before the first timing."""

    config_points: ConfigPoints
    points: Points
    surrogate: Mixture | None

    def rows(self, configs: Sequence[Config]) -> list[int]:
        return [self.config_points.row[config] for config in configs]


@cache
def _libraries() -> ThreadpoolController:
    """Find the libraries of this process once: to look takes milliseconds, and NumPy's is there."""
    return ThreadpoolController()


def _one_thread() -> AbstractContextManager[object]:
    """Keep BLAS from starting a thread a core, which would wait for cores that compile.

    The matrices are small: on 2 busy cores a search took twice as long with two threads.
    """
    limits: AbstractContextManager[object] = _libraries().limit(limits=1, user_api="blas")
    return limits


class Model:
    """Ranks configs before compiling, and again after each batch by the timings so far."""

    name = "model"

    def __init__(
        self,
        predictor: Predictor | None,
        pace: BatchSizes,
        seed: int = 0,
        read: Reader | None = None,
    ) -> None:
        self._predictor, self._pace, self._seed, self._read = predictor, pace, seed, read
        self._config_points: ConfigPoints | None = None
        self._last: tuple[Points, tuple[float, ...], _View] | None = None

    def propose(self, state: SearchState) -> Proposal:
        """Propose the best predicted; after timings those of the greatest expected gain."""
        left = state.open()
        if not left:
            return Proposal(reason=f"all {len(state.configs)} configs tried")
        with _one_thread():
            return self._proposal(state, left)

    def select(self, state: SearchState) -> Sequence[Config]:
        """Return those that may be the best, the likeliest first."""
        ready = state.ready()
        with _one_thread():
            return self._selection(state, ready) if ready else ()

    def _proposal(self, state: SearchState, left: Sequence[Config]) -> Proposal:
        view = self._view(state)
        count = self._pace.batch if state.compiles else self._pace.first
        rows = np.array(view.rows(left))
        if view.surrogate is None:
            order = np.argsort(view.points.predicted[rows], kind="stable")
            chosen = covering(left, order.tolist(), count)
            return Proposal(tuple(left[place] for place in chosen))
        return self._gainful(view, view.surrogate, rows, count, state.trust)

    def _selection(self, state: SearchState, ready: Sequence[Config]) -> Sequence[Config]:
        view = self._view(state)
        points = view.points.at(view.rows(ready))
        if view.surrogate is None:
            order = np.argsort(points.predicted, kind="stable").tolist()
            order = covering(ready, order, self._pace.trial)
        else:
            gains = state.trust * view.surrogate.improvement(points)
            likeliest = np.argsort(-gains, kind="stable")
            order = likeliest[gains[likeliest] > WORTH_TIMING * self._pace.gain].tolist()
        return [ready[place] for place in order[: self._pace.trial]]

    def _gainful(
        self, view: _View, surrogate: Mixture, rows: NDArray[np.intp], count: int, trust: float
    ) -> Proposal:
        """Propose a batch if its expected gain is large enough."""
        gains = surrogate.improvement(view.points.at(rows))
        rows = rows[np.argsort(-gains, kind="stable")[: max(POOL, 4 * count)]]
        chosen, gain = surrogate.batch(view.points.at(rows), count, self._seed)
        if (likely := trust * gain) < self._pace.gain:
            return Proposal((), gain, f"expected gain {likely:.1%} under {self._pace.gain:.1%}")
        return Proposal(tuple(view.config_points.configs[row] for row in rows[chosen]), gain)

    def _view(self, state: SearchState) -> _View:
        config_points = self._config_points
        if config_points is None or not config_points.is_of(state):
            predictor = self._predictor
            config_points = self._config_points = ConfigPoints(state, predictor, self._read)
        points, times = config_points.points(state), tuple(state.timings.values())
        # What is compiled next and what is timed now is mostly asked of one state.
        if self._last is None or self._last[0] is not points or self._last[1] != times:
            timed = points.at([config_points.row[config] for config in state.timings])
            surrogate = Mixture.of(timed, np.log(np.array(times))) if times else None
            self._last = points, times, _View(config_points, points, surrogate)
        return self._last[2]


@dataclass(frozen=True)
class Exhaustive:
    """Compiles and times every config, in the space's order.

    Attributes:
        pace: sizes of steps.
    """

    pace: BatchSizes = field(default_factory=BatchSizes)

    name = "exhaustive"

    def propose(self, state: SearchState) -> Proposal:
        """Propose the next configs."""
        left = state.open()
        if not left:
            return Proposal(reason=f"all {len(state.configs)} configs tried")
        return Proposal(tuple(left[: self.pace.batch if state.compiles else self.pace.first]))

    def select(self, state: SearchState) -> Sequence[Config]:
        """Select all that is compiled, as many as a trial takes."""
        return state.ready()[: self.pace.trial]


class WholeList(Exhaustive):
    """Compiles a short list at once, and times each config as soon as it is compiled."""

    name = "whole list"

    def propose(self, state: SearchState) -> Proposal:
        """Propose all configs."""
        left = state.open()
        reason = "" if left else f"all {len(state.configs)} configs tried"
        return Proposal(tuple(left), reason=reason, as_they_come=True)

    def select(self, state: SearchState) -> Sequence[Config]:
        """Select all that is compiled."""
        return state.ready()


STRATEGIES: Final = ("model", "exhaustive")


def make_strategy(
    name: str, seed: int = 0, predictor: Predictor | None = None, pace: BatchSizes | None = None
) -> Strategy:
    """Make the strategy of a name.

    Raises:
        InputError: no such strategy; lists them.
    """
    pace = pace or BatchSizes()
    if name == "exhaustive":
        return Exhaustive(pace)
    if name == "model":
        return Model(predictor, pace, seed)
    hint = did_you_mean(name, STRATEGIES)
    raise InputError(f"unknown strategy {name!r}: the strategies are {', '.join(STRATEGIES)}{hint}")
