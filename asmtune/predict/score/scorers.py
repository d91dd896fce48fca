"""Two simple scorers, and the table of all scorers by name.

`learned` and `roofline` are imported when they are made: `learned` loads scikit-learn.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from asmtune.base.errors import InputError
from asmtune.base.json_codec import parse_json
from asmtune.base.limited_read import MIB, read_limited
from asmtune.base.text import did_you_mean, shortened
from asmtune.core.hardware.model import Target
from asmtune.core.records.verdicts import Features
from asmtune.predict.score.scorer import Candidate, Scorer

WEIGHTS: Final = {
    "text_mma_sync": 10.0,
    "text_cp_async": 2.0,
    "text_bar_sync": -30.0,
    "text_bra": -5.0,
    "text_ret": -5.0,
}
"""Points for each occurrence in the PTX, by feature name."""

_PRODUCTS: Final = ("text_mma_sync", "text_wgmma", "text_tcgen05_mma")
"""Tensor instructions; the first that the PTX has counts as mma.sync does."""

_KEPT: Final = (
    "a sum of counts is worse than chance: ten configs kept 0.545 of the best speed on 51 recorded "
    "tasks (H200), at random 0.884, by roofline 0.986"
)
"""Figures of benchmarks/results/replay.json."""


class Weights(Scorer):
    """Scores by a weighted sum of features: by default counts of mnemonics in the PTX.

    Args:
        name: name on the command line: "weights", or "weights:FILE.json" with points of its own.

    Raises:
        InputError: the file cannot be read, names an unknown feature, or has other values than
            numbers.
    """

    def __init__(self, name: str = "weights") -> None:
        self.name = name
        file = name.partition(":")[2]
        self._points = _points(Path(file)) if file else WEIGHTS

    def score(self, candidates: Sequence[Candidate], draw: int = 0) -> list[float]:  # noqa: ARG002
        """Return the sum for each candidate; a config without features comes last."""
        return [
            float("-inf") if c.features is None else sum(self.points(c.features).values())
            for c in candidates
        ]

    def points(self, features: Features) -> dict[str, float]:
        """Return the points of each feature: PTX without mma.sync is given those of wgmma."""
        counts = {name: features[name] for name in self._points}
        if "text_mma_sync" in counts and not any(name in counts for name in _PRODUCTS[1:]):
            counts["text_mma_sync"] = next(filter(None, map(features.__getitem__, _PRODUCTS)), 0.0)
        return {name: self._points[name] * count for name, count in counts.items()}

    def notes(self, target: Target) -> tuple[str, ...]:  # noqa: ARG002
        """Say what the ranking kept on the recordings, beside others."""
        return (_KEPT,) if self._points is WEIGHTS else ()


def _points(path: Path) -> dict[str, float]:
    """Read points by feature name.

    Raises:
        InputError: as `Weights`.
    """
    from asmtune.predict.features.catalog import FEATURES

    where, form = f"--scorer weights:{path}", 'expected points by feature, as {"text_bra": -5}'
    try:
        points = parse_json(read_limited(path, MIB))
    except OSError as error:
        raise InputError(f"{where}: cannot be read ({error.strerror or error}); {form}") from error
    except ValueError as error:
        raise InputError(f"{where}: not whole JSON ({error}); {form}") from error
    if not isinstance(points, dict) or not points:
        raise InputError(f"{where}: {shortened(json.dumps(points))}; {form}")
    for name, value in points.items():
        if name not in FEATURES:
            hint = did_you_mean(name, FEATURES)
            more = "; `asmtune model features` lists the features"
            raise InputError(f"{where}: unknown feature {shortened(name)!r}{hint}{more}")
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value):
            raise InputError(f"{where}: {name} is {shortened(json.dumps(value))}; {form}")
    return points


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
    "weights": Weights,
    "chance": Chance,
}


def scorer_names() -> tuple[str, ...]:
    """Return the names of all scorers."""
    return tuple(_SCORERS)


def make_scorer(name: str) -> Scorer:
    """Return the scorer of a name, or of "weights:FILE.json".

    Raises:
        InputError: no such scorer; lists them. Or the file of points cannot be used.
    """
    if name in _SCORERS:
        return _SCORERS[name]()
    if name.startswith("weights:"):
        return Weights(name)
    hint = did_you_mean(name, _SCORERS)
    raise InputError(f"unknown scorer {name!r}: the scorers are {', '.join(_SCORERS)}{hint}")


def for_target(scorer: Scorer, target: Target) -> Scorer:
    """Return the scorer for a target: `learned` knows NVIDIA's devices alone."""
    if target.backend == "cuda" or scorer.name != "learned":
        return scorer
    from asmtune.predict.score.roofline import Roofline

    return Roofline("ranked by roofline: learned was trained on NVIDIA devices alone")
