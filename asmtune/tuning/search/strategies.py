"""The search strategies by name, those without a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from asmtune.base.errors import InputError
from asmtune.base.text import did_you_mean
from asmtune.core.config import Config
from asmtune.tuning.search.base import BatchSizes, Predictor, Proposal, Strategy
from asmtune.tuning.search.state import SearchState


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
        from asmtune.tuning.search.model import Model  # loads NumPy

        return Model(predictor, pace, seed)
    hint = did_you_mean(name, STRATEGIES)
    raise InputError(f"unknown strategy {name!r}: the strategies are {', '.join(STRATEGIES)}{hint}")
