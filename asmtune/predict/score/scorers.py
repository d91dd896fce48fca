"""Two simple scorers, the table of all scorers by name, and those of other packages.

`learned` and `roofline` are imported when they are made: they load NumPy.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Final

from asmtune.base.errors import InputError
from asmtune.base.json_codec import parse_json
from asmtune.base.limited_read import MIB, read_limited
from asmtune.base.text import did_you_mean, shortened
from asmtune.core.failures import required
from asmtune.core.hardware.model import Target
from asmtune.core.records.verdicts import Features
from asmtune.predict.score.scorer import Candidate, Scorer

GROUP: Final = "asmtune.scorers"
"""Entry points of packages that bring a scorer: a subclass of `Scorer`, or what makes one."""

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

_REPLAYED: Final = Path(__file__).with_name("data") / "replayed.json"
"""Shares that scorers kept on the recordings: figures of benchmarks/results/replay.json."""


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
        _, colon, file = name.partition(":")
        self._points = _points(Path(file)) if colon else WEIGHTS

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
        return (_replayed(),) if self._points is WEIGHTS else ()


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


def _replayed() -> str:
    """Say what `weights`, `roofline` and `learned` kept on the recordings.

    Each was ranked with no timing of the kernel itself.
    """
    found = json.loads(_REPLAYED.read_text(encoding="utf-8"))
    kept = ", ".join(f"{name} {share:.3f}" for name, share in found["top10"].items())
    return (
        f"share of the best speed that ten configs kept on {found['tasks']} recorded tasks "
        f"({found['device']}, {found['date'][:10]}): {kept}"
    )


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


def _learned(name: str = "learned") -> Scorer:
    from asmtune.predict.score.learned import Learned

    return Learned(name)


_SCORERS: dict[str, Callable[[], Scorer]] = {
    "learned": _learned,
    "roofline": _roofline,
    "weights": Weights,
    "chance": Chance,
}


def scorer_names() -> tuple[str, ...]:
    """Return the names of all scorers, those of other packages last."""
    return (*_SCORERS, *_others())


def _others() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP) if entry.name not in _SCORERS}


def make_scorer(name: str) -> Scorer:
    """Return the scorer of a name, or of "weights:FILE.json" or "learned:FILE.npz".

    Raises:
        InputError: no such scorer; lists them. Or the file of points or trees or another package's
            scorer cannot be used.
    """
    if name in _SCORERS:
        return _SCORERS[name]()
    if name.startswith("weights:"):
        return Weights(name)
    if name.startswith("learned:"):
        return _learned(name)
    others = _others()
    if name not in others:
        known = (*_SCORERS, *others)
        hint = did_you_mean(name, known)
        raise InputError(f"unknown scorer {name!r}: the scorers are {', '.join(known)}{hint}")
    entry = others[name]
    scorer = required(f"scorer {name} ({entry.value})", lambda: entry.load()())
    if not isinstance(scorer, Scorer) or getattr(scorer, "name", None) != name:
        raise InputError(
            f"scorer {name} ({entry.value}): {shortened(repr(scorer))} is no asmtune Scorer whose "
            f"name is {name!r}; the entry point names a subclass, or a function that makes one"
        )
    return scorer


def for_target(scorer: Scorer, target: Target) -> Scorer:
    """Return the scorer for a target: `learned` knows NVIDIA's devices alone."""
    if target.backend == "cuda" or scorer.name.partition(":")[0] != "learned":
        return scorer
    from asmtune.predict.score.roofline import Roofline

    return Roofline("ranked by roofline: learned was trained on NVIDIA devices alone")
