"""Chance, and the table of all scorers by name.

`learned` and `roofline` are imported when they are made: `learned` loads scikit-learn.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from asmtune.base.errors import InputError
from asmtune.base.text import did_you_mean
from asmtune.core.hardware.model import Target
from asmtune.predict.score.scorer import Candidate, Scorer


class Chance(Scorer):
    """Scores at random, the same for the same seed and draw."""

    name = "chance"
    draws = 200

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def score(self, candidates: Sequence[Candidate], draw: int = 0) -> list[float]:
        """Return independent uniform numbers in [0, 1)."""
        generator = random.Random(self._seed * 1_000_003 + draw)
        return [generator.random() for _ in candidates]


def _roofline() -> Scorer:
    from asmtune.predict.score.roofline import Roofline

    return Roofline()


def _learned() -> Scorer:
    from asmtune.predict.score.learned import Learned

    return Learned()


_SCORERS: dict[str, Callable[[], Scorer]] = {
    "learned": _learned,
    "roofline": _roofline,
    "chance": Chance,
}


def scorer_names() -> tuple[str, ...]:
    """Return the names of all scorers."""
    return tuple(_SCORERS)


def make_scorer(name: str) -> Scorer:
    """Return the scorer of a name.

    Raises:
        InputError: no such scorer; lists them.
    """
    if name not in _SCORERS:
        hint = did_you_mean(name, _SCORERS)
        raise InputError(f"unknown scorer {name!r}: the scorers are {', '.join(_SCORERS)}{hint}")
    return _SCORERS[name]()


def for_target(scorer: Scorer, target: Target) -> Scorer:
    """Return the scorer for a target: `learned` knows NVIDIA's devices alone."""
    if target.backend == "cuda" or scorer.name != "learned":
        return scorer
    from asmtune.predict.score.roofline import Roofline

    return Roofline("ranked by roofline: learned was trained on NVIDIA devices alone")
