"""The table of scorers; each is imported when it is asked for."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from asmtune.base.errors import InputError
from asmtune.base.text import did_you_mean
from asmtune.predict.score.base import Candidate, Scorer

WEIGHTS: Final = {
    "text_mma_sync": 10.0,
    "text_cp_async": 2.0,
    "text_bar_sync": -30.0,
    "text_bra": -5.0,
    "text_ret": -5.0,
}
"""Points for each occurrence in the PTX, by feature name."""


class Weights:
    """The weighted sum of mnemonic counts."""

    name = "weights"
    draws = 1

    def score(self, candidates: Sequence[Candidate], draw: int = 0) -> list[float]:  # noqa: ARG002
        """The sum for each candidate; one that was not compiled comes last."""
        return [_sum(candidate) for candidate in candidates]


def _sum(candidate: Candidate) -> float:
    features = candidate.features
    if features is None:
        return float("-inf")
    return sum(weight * features[name] for name, weight in WEIGHTS.items())


class Chance:
    """Uniform scores, the same for the same seed and draw.

    Args:
        seed: of the generator.
    """

    name = "chance"
    draws = 200

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def score(self, candidates: Sequence[Candidate], draw: int = 0) -> list[float]:
        """Independent uniform numbers in [0, 1)."""
        generator = random.Random(self._seed * 1_000_003 + draw)
        return [generator.random() for _ in candidates]


def _weights() -> Scorer:

    return Weights()


def _chance() -> Scorer:

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
