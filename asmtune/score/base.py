"""The scorers' common interface, and the table of them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from asmtune.config import Config
from asmtune.errors import InputError
from asmtune.records import Features
from asmtune.target import Target
from asmtune.workload import Dot


@dataclass(frozen=True)
class Candidate:
    """A config with as much as is known of it so far.

    Attributes:
        config: the config.
        target: the machine.
        dots: matrix products of its TTIR; None before the front end ran.
        features: of its assembly; None before it was compiled.
    """

    config: Config
    target: Target
    dots: tuple[Dot, ...] | None = None
    features: Features | None = None


class Scorer(Protocol):
    """Ranks compiled candidates of one problem on one target.

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
        """One number a candidate; higher is better, the scale is the scorer's own."""
        ...


@runtime_checkable
class Noting(Protocol):
    """A scorer that has something to say of its rankings."""

    def notes(self, target: Target) -> tuple[str, ...]:
        """What a reader must know of a ranking for a target."""
        ...


@runtime_checkable
class Trained(Protocol):
    """A scorer that was trained on timings of kernels."""

    def for_kernel(self, kernel: str) -> Scorer:
        """The scorer as it would be had it never seen a kernel."""
        ...


def notes_of(scorer: Scorer, target: Target) -> tuple[str, ...]:
    """What a scorer says of its rankings for a target."""
    return scorer.notes(target) if isinstance(scorer, Noting) else ()


def without_kernel(scorer: Scorer, kernel: str) -> Scorer:
    """A scorer that never saw a kernel; one that needs no training is itself."""
    return scorer.for_kernel(kernel) if isinstance(scorer, Trained) else scorer


def _weights() -> Scorer:
    from asmtune.score.weights import Weights

    return Weights()


def _chance() -> Scorer:
    from asmtune.score.chance import Chance

    return Chance()


def _roofline() -> Scorer:
    from asmtune.score.roofline import Roofline

    return Roofline()


def _learned() -> Scorer:
    from asmtune.score.learned import Learned

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
        near = difflib.get_close_matches(name, _SCORERS, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InputError(f"unknown scorer {name!r}: the scorers are {', '.join(_SCORERS)}{hint}")
    return _SCORERS[name]()
