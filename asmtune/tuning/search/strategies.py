"""The search strategies by name, those without a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from asmtune.base.errors import InputError
from asmtune.base.text import did_you_mean
from asmtune.core.config import Config
from asmtune.tuning.search.base import BatchSizes, Predictor, Proposal, Strategy
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
        left = state.open()
        reason = "" if left else f"all {len(state.configs)} configs tried"
        return Proposal(tuple(left), reason=reason, as_they_come=True)

    def select(self, state: State) -> Sequence[Config]:
        """Select all that is compiled."""
        return state.ready()


def _model(predictor: Predictor | None, pace: BatchSizes, seed: int) -> Strategy:
    from asmtune.tuning.search.model import Model

    return Model(predictor, pace, seed)


STRATEGIES: Final[dict[str, Callable[[Predictor | None, BatchSizes, int], Strategy]]] = {
    "model": _model,
    "exhaustive": lambda _predictor, pace, _seed: Exhaustive(pace),
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
