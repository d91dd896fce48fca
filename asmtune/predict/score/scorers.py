"""The table of scorers; each is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Callable

from asmtune.base.did_you_mean import did_you_mean
from asmtune.base.errors import InputError
from asmtune.predict.score.base import Scorer


def _weights() -> Scorer:
    from asmtune.predict.score.weights import Weights

    return Weights()


def _chance() -> Scorer:
    from asmtune.predict.score.chance import Chance

    return Chance()


def _roofline() -> Scorer:
    from asmtune.predict.score.roofline import Roofline

    return Roofline()


def _learned() -> Scorer:
    from asmtune.predict.score.learned import Learned

    return Learned()


_SCORERS: dict[str, Callable[[], Scorer]] = {
    "learned": _learned,
    "roofline": _roofline,
    "weights": _weights,
    "chance": _chance,
}


def scorer_names() -> tuple[str, ...]:
    """Names of all scorers."""
    return tuple(_SCORERS)


def make_scorer(name: str) -> Scorer:
    """The scorer of a name.

    Raises:
        InputError: no such scorer; lists them.
    """
    if name not in _SCORERS:
        hint = did_you_mean(name, _SCORERS)
        raise InputError(f"unknown scorer {name!r}: the scorers are {', '.join(_SCORERS)}{hint}")
    return _SCORERS[name]()
