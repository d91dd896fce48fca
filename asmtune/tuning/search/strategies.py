"""The search strategies by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from asmtune.base.did_you_mean import did_you_mean
from asmtune.base.errors import InputError
from asmtune.tuning.search.base import BatchSizes, Predictor, Strategy

_Make = Callable[[Predictor | None, BatchSizes, int], Strategy]


def _model(insight: Predictor | None, pace: BatchSizes, seed: int) -> Strategy:
    from asmtune.tuning.search.model import Model

    return Model(insight, pace, seed)


def _exhaustive(insight: Predictor | None, pace: BatchSizes, seed: int) -> Strategy:  # noqa: ARG001
    from asmtune.tuning.search.unmodelled import Exhaustive

    return Exhaustive(pace)


def _random(insight: Predictor | None, pace: BatchSizes, seed: int) -> Strategy:  # noqa: ARG001
    from asmtune.tuning.search.unmodelled import Sampling

    return Sampling(pace, seed)


def _hierarchical(insight: Predictor | None, pace: BatchSizes, seed: int) -> Strategy:  # noqa: ARG001
    from asmtune.tuning.search.unmodelled import Hierarchical

    return Hierarchical(pace)


_STRATEGIES: Final[dict[str, _Make]] = {
    "model": _model,
    "exhaustive": _exhaustive,
    "random": _random,
    "hierarchical": _hierarchical,
}


def strategy_names() -> tuple[str, ...]:
    """Names of all strategies."""
    return tuple(_STRATEGIES)


def make_strategy(
    name: str, seed: int = 0, insight: Predictor | None = None, pace: BatchSizes | None = None
) -> Strategy:
    """The strategy of a name.

    Args:
        name: one of `strategy_names`.
        seed: of all that it draws.
        insight: what predicts, for the strategies that ask.
        pace: in which steps it goes on.

    Raises:
        InputError: no such strategy; lists them.
    """
    if name not in _STRATEGIES:
        hint = did_you_mean(name, _STRATEGIES)
        raise InputError(
            f"unknown strategy {name!r}: the strategies are {', '.join(_STRATEGIES)}{hint}"
        )
    return _STRATEGIES[name](insight, pace or BatchSizes(), seed)
