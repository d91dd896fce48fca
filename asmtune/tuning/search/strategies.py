"""The search strategies by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from asmtune.base.errors import InputError
from asmtune.base.text import did_you_mean
from asmtune.tuning.search.base import BatchSizes, Predictor, Strategy

_Make = Callable[[Predictor | None, BatchSizes, int], Strategy]


def _model(predictor: Predictor | None, pace: BatchSizes, seed: int) -> Strategy:
    from asmtune.tuning.search.model import Model

    return Model(predictor, pace, seed)


def _exhaustive(predictor: Predictor | None, pace: BatchSizes, seed: int) -> Strategy:  # noqa: ARG001
    from asmtune.tuning.search.unmodelled import Exhaustive

    return Exhaustive(pace)


def _random(predictor: Predictor | None, pace: BatchSizes, seed: int) -> Strategy:  # noqa: ARG001
    from asmtune.tuning.search.unmodelled import Sampling

    return Sampling(pace, seed)


def _hierarchical(predictor: Predictor | None, pace: BatchSizes, seed: int) -> Strategy:  # noqa: ARG001
    from asmtune.tuning.search.unmodelled import Hierarchical

    return Hierarchical(pace)


_STRATEGIES: Final[dict[str, _Make]] = {
    "model": _model,
    "exhaustive": _exhaustive,
    "random": _random,
    "hierarchical": _hierarchical,
}


def strategy_names() -> tuple[str, ...]:
    """List the names of all strategies."""
    return tuple(_STRATEGIES)


def make_strategy(
    name: str, seed: int = 0, predictor: Predictor | None = None, pace: BatchSizes | None = None
) -> Strategy:
    """Make the strategy of a name.

    Args:
        name: one of `strategy_names`.
        seed: seeds all that it draws.
        predictor: for the strategies that use predictions.
        pace: sizes of its steps.

    Raises:
        InputError: no such strategy; lists them.
    """
    if name not in _STRATEGIES:
        hint = did_you_mean(name, _STRATEGIES)
        raise InputError(
            f"unknown strategy {name!r}: the strategies are {', '.join(_STRATEGIES)}{hint}"
        )
    return _STRATEGIES[name](predictor, pace or BatchSizes(), seed)
