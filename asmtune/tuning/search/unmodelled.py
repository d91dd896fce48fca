"""Strategies without a model: `exhaustive`, `random`, and `hierarchical` (coarse to fine)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from asmtune.core.config import Config
from asmtune.tuning.search.axes import Axes, steps
from asmtune.tuning.search.base import BatchSizes, Proposal
from asmtune.tuning.search.state import State


@dataclass(frozen=True)
class Exhaustive:
    """Compiles and times every config, in the space's order.

    Attributes:
        pace: sizes of steps.
    """

    pace: BatchSizes = field(default_factory=BatchSizes)

    name = "exhaustive"

    def propose(self, state: State) -> Proposal:
        """Propose the next configs."""
        return next_of(state.open(), state, self.pace)

    def select(self, state: State) -> Sequence[Config]:
        """Select all that is compiled, as many as a trial takes."""
        return state.ready()[: self.pace.trial]


def next_of(configs: Sequence[Config], state: State, pace: BatchSizes) -> Proposal:
    """Propose the first of some configs, as many as a batch takes."""
    if not configs:
        return Proposal(reason=f"all {len(state.configs)} configs tried")
    return Proposal(tuple(configs[: pace.batch if state.compiles else pace.first]))


@dataclass(frozen=True)
class Sampling:
    """Compiles configs at random, and times all; a limit ends it, or the space.

    Attributes:
        pace: sizes of steps.
        seed: seeds the order.
    """

    pace: BatchSizes = field(default_factory=BatchSizes)
    seed: int = 0

    name = "random"

    def propose(self, state: State) -> Proposal:
        """Propose the next configs of an order that the seed decides."""
        place = {config: rank for rank, config in enumerate(state.configs)}
        order = random.Random(self.seed).sample(range(len(place)), len(place))
        return next_of(sorted(state.open(), key=lambda c: order[place[c]]), state, self.pace)

    def select(self, state: State) -> Sequence[Config]:
        """Select all that is compiled, as many as a trial takes."""
        return state.ready()[: self.pace.trial]


CENTRES: Final = 3
"""Number of the fastest configs whose neighbours are tried."""

MOST_STEPS: Final = 2
"""Axes on which a neighbour differs, by one value each."""


@dataclass(frozen=True)
class Hierarchical:
    """Coarse to fine; ends where no neighbour of the best is left.

    Attributes:
        pace: sizes of steps.
    """

    pace: BatchSizes = field(default_factory=BatchSizes)

    name = "hierarchical"

    def propose(self, state: State) -> Proposal:
        """Propose the rest of the coarse grid, and then neighbours, the nearest first."""
        left = state.open()
        axes = Axes(state.configs)
        coarse = [c for c in left if all(place % 2 == 0 for place in axes.places[c])]
        if not coarse and not state.timings and state.ready():
            return Proposal(reason="none of the coarse grid is timed yet")
        if coarse or not state.timings:
            return next_of(coarse or left, state, self.pace)
        centres = [axes.places[config] for config in state.fastest(CENTRES)]
        away = {c: min(_away(axes.places[c], centre) for centre in centres) for c in left}
        near = sorted((c for c in left if away[c] <= MOST_STEPS), key=lambda c: away[c])
        if left and not near:
            return Proposal(reason=f"all neighbours of the {len(centres)} fastest tried")
        return next_of(near, state, self.pace)

    def select(self, state: State) -> Sequence[Config]:
        """Select all that is compiled, as many as a trial takes."""
        return state.ready()[: self.pace.trial]


def _away(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    count = steps(one, other)
    return MOST_STEPS + 1 if count is None else count
