"""The search strategies by name, those without a model."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from asmtune.base.errors import InputError
from asmtune.base.text import did_you_mean
from asmtune.core.config import Config
from asmtune.tuning.search.base import (
    Axes,
    BatchSizes,
    Place,
    Predictor,
    Proposal,
    Strategy,
    steps,
)
from asmtune.tuning.search.state import State


@dataclass(frozen=True)
class _Unmodelled:
    """Base class of strategies without a model, which time all that is compiled.

    Attributes:
        pace: sizes of steps.
    """

    pace: BatchSizes = field(default_factory=BatchSizes)

    def select(self, state: State) -> Sequence[Config]:
        """Select all that is compiled, as many as a trial takes."""
        return state.ready()[: self.pace.trial]

    def _next_of(self, configs: Sequence[Config], state: State) -> Proposal:
        if not configs:
            return Proposal(reason=f"all {len(state.configs)} configs tried")
        count = self.pace.batch if state.compiles else self.pace.first
        return Proposal(tuple(configs[:count]))


class Exhaustive(_Unmodelled):
    """Compiles and times every config, in the space's order."""

    name = "exhaustive"

    def propose(self, state: State) -> Proposal:
        """Propose the next configs."""
        return self._next_of(state.open(), state)


class WholeList(_Unmodelled):
    """Compiles a short list at once, and times each config as soon as it is compiled."""

    name = "whole list"

    def propose(self, state: State) -> Proposal:
        """Propose all configs."""
        left = state.untried()
        reason = "" if left else f"all {len(state.configs)} configs tried"
        return Proposal(tuple(left), reason=reason, as_they_come=True)

    def select(self, state: State) -> Sequence[Config]:
        """Select all that is compiled."""
        return state.ready()


@dataclass(frozen=True)
class Sampling(_Unmodelled):
    """Compiles configs at random, and times all; a limit ends it, or the space.

    Attributes:
        seed: seeds the order.
    """

    seed: int = 0

    name = "random"

    def propose(self, state: State) -> Proposal:
        """Propose the next configs of an order that the seed decides."""
        place = {config: rank for rank, config in enumerate(state.configs)}
        order = random.Random(self.seed).sample(range(len(place)), len(place))
        return self._next_of(sorted(state.open(), key=lambda c: order[place[c]]), state)


CENTRES: Final = 3
"""Number of the fastest configs whose neighbours are tried."""

MOST_STEPS: Final = 2
"""Axes on which a neighbour differs, by one value each."""


class Hierarchical(_Unmodelled):
    """Coarse to fine; ends where no neighbour of the best is left."""

    name = "hierarchical"

    def propose(self, state: State) -> Proposal:
        """Propose the rest of the coarse grid, and then neighbours, the nearest first."""
        left = state.open()
        axes = Axes(state.configs)
        coarse = [c for c in left if all(place % 2 == 0 for place in axes.places[c])]
        if not coarse and not state.timings and state.ready():
            return Proposal(reason="none of the coarse grid is timed yet")
        if coarse or not state.timings:
            return self._next_of(coarse or left, state)
        centres = [axes.places[config] for config in state.fastest(CENTRES)]
        away = {c: min(_away(axes.places[c], centre) for centre in centres) for c in left}
        near = sorted((c for c in left if away[c] <= MOST_STEPS), key=lambda c: away[c])
        if left and not near:
            return Proposal(reason=f"all neighbours of the {len(centres)} fastest tried")
        return self._next_of(near, state)


def _away(one: Place, other: Place) -> int:
    count = steps(one, other)
    return MOST_STEPS + 1 if count is None else count


def _model(predictor: Predictor | None, pace: BatchSizes, seed: int) -> Strategy:
    from asmtune.tuning.search.model import Model

    return Model(predictor, pace, seed)


STRATEGIES: Final[dict[str, Callable[[Predictor | None, BatchSizes, int], Strategy]]] = {
    "model": _model,
    "exhaustive": lambda _predictor, pace, _seed: Exhaustive(pace),
    "random": lambda _predictor, pace, seed: Sampling(pace, seed),
    "hierarchical": lambda _predictor, pace, _seed: Hierarchical(pace),
}


def make_strategy(
    name: str, seed: int = 0, predictor: Predictor | None = None, pace: BatchSizes | None = None
) -> Strategy:
    """Make the strategy of a name.

    Raises:
        InputError: no such strategy; lists them.
    """
    if name not in STRATEGIES:
        hint = did_you_mean(name, STRATEGIES)
        raise InputError(
            f"unknown strategy {name!r}: the strategies are {', '.join(STRATEGIES)}{hint}"
        )
    return STRATEGIES[name](predictor, pace or BatchSizes(), seed)
