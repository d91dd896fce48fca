"""`model`: what the model expects to gain most, until it expects too little."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from asmtune.core.config import Config
from asmtune.tuning.search.base import BatchSizes, Predictor, Proposal
from asmtune.tuning.search.gain import batch_gain, improvement, spread_out
from asmtune.tuning.search.points import ConfigPoints
from asmtune.tuning.search.state import State
from asmtune.tuning.search.surrogate import Points, Surrogate

POOL: Final = 256
"""Configs of the greatest expected improvement that a batch is chosen among."""

WORTH_TIMING: Final = 0.05
"""Of the gain that another batch must promise, what one timing must: a batch costs more."""


@dataclass(frozen=True)
class _View:
    """The space as the model sees it now: untimed, it ranks; once timed, it believes."""

    outlook: ConfigPoints
    points: Points
    surrogate: Surrogate | None

    def rows(self, configs: Sequence[Config]) -> list[int]:
        return [self.outlook.row[config] for config in configs]


def _one_thread() -> AbstractContextManager[object]:
    """Keeps BLAS from starting a thread a core, which wait for cores that compile.

    The matrices are small: on 2 busy cores a search took twice as long with two threads.
    """
    limits: AbstractContextManager[object] = threadpool_limits(1, user_api="blas")
    return limits


class Model:
    """Ranks before compiling, and looks again at what is left after each batch.

    Args:
        insight: what predicts.
        pace: in which steps; and the gain below which the search ends.
        seed: of the draws that a batch's gain is averaged over.
    """

    name = "model"

    def __init__(self, insight: Predictor | None, pace: BatchSizes, seed: int = 0) -> None:
        self._insight, self._pace, self._seed = insight, pace, seed
        self._outlook: ConfigPoints | None = None

    def propose(self, state: State) -> Proposal:
        """Before any timing the best predicted; then those of the greatest expected gain."""
        left = state.open()
        if not left:
            return Proposal(reason=f"all {len(state.configs)} configs tried")
        with _one_thread():
            return self._proposal(state, left)

    def select(self, state: State) -> Sequence[Config]:
        """Those that may be the best, the likeliest first."""
        ready = state.ready()
        with _one_thread():
            return self._selection(state, ready) if ready else ()

    def _proposal(self, state: State, left: Sequence[Config]) -> Proposal:
        view = self._view(state)
        count = self._pace.batch if state.compiles else self._pace.first
        rows = np.array(view.rows(left))
        if view.surrogate is None:
            order = np.argsort(view.points.predicted[rows], kind="stable")
            return Proposal(tuple(left[place] for place in order[:count]))
        return self._gainful(view, view.surrogate, rows, count)

    def _selection(self, state: State, ready: Sequence[Config]) -> Sequence[Config]:
        view = self._view(state)
        points = view.points.at(view.rows(ready))
        if view.surrogate is None:
            order = np.argsort(points.predicted, kind="stable")
        else:
            gains = improvement(view.surrogate.believe(points), view.surrogate.best)
            order = np.argsort(-gains, kind="stable")
            order = order[gains[order] > WORTH_TIMING * self._pace.gain]
        return [ready[place] for place in order[: self._pace.trial]]

    def _gainful(
        self, view: _View, surrogate: Surrogate, rows: NDArray[np.intp], count: int
    ) -> Proposal:
        """A batch, if it is worth it."""
        gains = improvement(surrogate.believe(view.points.at(rows)), surrogate.best)
        rows = rows[np.argsort(-gains, kind="stable")[: max(POOL, 4 * count)]]
        points = view.points.at(rows)
        mean, covariance = surrogate.believe(points).mean, surrogate.covariance(points)
        chosen = spread_out(mean, covariance, surrogate.best, count)
        among = covariance[np.ix_(chosen, chosen)]
        gain = batch_gain(mean[chosen], among, surrogate.best, self._seed)
        if gain < self._pace.gain:
            return Proposal((), gain, f"expected gain {gain:.1%} under {self._pace.gain:.1%}")
        return Proposal(tuple(view.outlook.configs[row] for row in rows[chosen]), gain)

    def _view(self, state: State) -> _View:
        outlook = self._outlook
        if outlook is None or not outlook.is_of(state):
            outlook = self._outlook = ConfigPoints(state, self._insight)
        points = outlook.points(state)
        timed = points.at([outlook.row[config] for config in state.timings])
        log_us = np.log(np.array(list(state.timings.values())))
        return _View(outlook, points, Surrogate(timed, log_us) if len(log_us) else None)
