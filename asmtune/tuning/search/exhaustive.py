"""`exhaustive`: every config, in the space's order."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from asmtune.core.config import Config
from asmtune.tuning.search.base import BatchSizes, Proposal
from asmtune.tuning.search.state import State


@dataclass(frozen=True)
class Exhaustive:
    """Compiles and times all there is.

    Attributes:
        pace: in which steps.
    """

    pace: BatchSizes = field(default_factory=BatchSizes)

    name = "exhaustive"

    def propose(self, state: State) -> Proposal:
        """The next ones."""
        return next_of(state.open(), state, self.pace)

    def select(self, state: State) -> Sequence[Config]:
        """All that is compiled, as many as a trial takes."""
        return state.ready()[: self.pace.trial]


def next_of(configs: Sequence[Config], state: State, pace: BatchSizes) -> Proposal:
    """The first of some configs, as many as a batch takes; none of none."""
    if not configs:
        return Proposal(reason=f"all {len(state.configs)} configs tried")
    return Proposal(tuple(configs[: pace.batch if state.compiles else pace.first]))


@dataclass(frozen=True)
class Sampling:
    """Compiles configs at random, and times all; a limit ends it, or the space.

    Attributes:
        pace: in which steps.
        seed: of the order.
    """

    pace: BatchSizes = field(default_factory=BatchSizes)
    seed: int = 0

    name = "random"

    def propose(self, state: State) -> Proposal:
        """The next ones of an order that the seed decides."""
        place = {config: rank for rank, config in enumerate(state.configs)}
        order = random.Random(self.seed).sample(range(len(place)), len(place))
        return next_of(sorted(state.open(), key=lambda c: order[place[c]]), state, self.pace)

    def select(self, state: State) -> Sequence[Config]:
        """All that is compiled, as many as a trial takes."""
        return state.ready()[: self.pace.trial]
