"""`chance`: a random order, the floor that every scorer must clear."""

from __future__ import annotations

import random
from collections.abc import Sequence

from asmtune.predict.score.base import Candidate


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
