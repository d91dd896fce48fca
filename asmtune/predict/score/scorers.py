"""The table of scorers; each is imported when it is asked for."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from asmtune.base.did_you_mean import did_you_mean
from asmtune.base.errors import InputError
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.records.features import Features
from asmtune.ir.ttir.dots import Dot


@dataclass(frozen=True)
class Candidate:
    """A config with as much as is known of it so far.

    Attributes:
        config: the config.
        target: the machine.
        dots: matrix products of its TTIR; None before the front end ran.
        features: of its assembly or, to predict before compiling, of its sketch; None
            before either.
    """

    config: Config
    target: Target
    dots: tuple[Dot, ...] | None = None
    features: Features | None = None


class Scorer(Protocol):
    """Ranks candidates of one problem on one target, all with features of one moment.

    Where a scorer's error is measured (`predict/score/error.py`), a difference of its scores is the
    logarithm of the ratio of predicted times: 0.02 means 2% (`learned` adds a share of the
    roofline's, so that its differences are larger). The scores of others have no scale.

    Attributes:
        name: as the command line knows it.
        draws: how often a replay draws it anew and averages; 1 where it is
            deterministic.
    """

    @property
    def name(self) -> str:
        """Name on the command line."""
        ...

    @property
    def draws(self) -> int:
        """Draws of a replay."""
        ...

    def score(self, candidates: Sequence[Candidate], draw: int = 0) -> list[float]:
        """One number a candidate; higher is better, by the scale above where there is one."""
        ...


@runtime_checkable
class Noting(Protocol):
    """A scorer that has something to say of its rankings."""

    def notes(self, target: Target) -> tuple[str, ...]:
        """What a reader must know of a ranking for a target."""
        ...


@runtime_checkable
class StandingBack(Protocol):
    """A scorer that lets another rank where it cannot be used."""

    @property
    def ranked_by(self) -> str:
        """Name of the scorer whose scores it gives."""
        ...


@runtime_checkable
class Foreseeing(Protocol):
    """A scorer that ranks before compiling as well, by the features of sketches."""

    @property
    def moments(self) -> tuple[str, ...]:
        """Of "sketch" and "assembly", those at which it ranks."""
        ...


@runtime_checkable
class Trained(Protocol):
    """A scorer that was trained on timings of kernels."""

    def for_kernel(self, kernel: str) -> Scorer:
        """The scorer as it would be had it never seen a kernel."""
        ...


@runtime_checkable
class Particular(Protocol):
    """A scorer that knows only some dtypes."""

    def for_dtypes(self, dtypes: Collection[str]) -> Scorer:
        """The scorer for a problem with tensors of these dtypes."""
        ...


def for_dtypes(scorer: Scorer, dtypes: Collection[str]) -> Scorer:
    """A scorer for a problem's dtypes; one that has none in mind is itself."""
    return scorer.for_dtypes(dtypes) if isinstance(scorer, Particular) else scorer


def notes_of(scorer: Scorer, target: Target) -> tuple[str, ...]:
    """What a scorer says of its rankings for a target."""
    return scorer.notes(target) if isinstance(scorer, Noting) else ()


def moments_of(scorer: Scorer) -> tuple[str, ...]:
    """When a scorer can rank: "assembly" after compiling, and "sketch" before where it says so."""
    return scorer.moments if isinstance(scorer, Foreseeing) else ("assembly",)


def ranked_by(scorer: Scorer) -> str:
    """Name of the scorer whose scores, with their scale and error, a scorer gives."""
    return scorer.ranked_by if isinstance(scorer, StandingBack) else scorer.name


def without_kernel(scorer: Scorer, kernel: str) -> Scorer:
    """A scorer that never saw a kernel; one that needs no training is itself."""
    return scorer.for_kernel(kernel) if isinstance(scorer, Trained) else scorer


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
    from asmtune.predict.score.scorers import Weights

    return Weights()


def _chance() -> Scorer:
    from asmtune.predict.score.scorers import Chance

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
