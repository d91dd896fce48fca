"""The base class of scorers, and the candidates that it ranks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.records.verdicts import Features
from asmtune.ir.ttir.costs import Dot


@dataclass(frozen=True)
class Candidate:
    """A config with everything known about it so far.

    Attributes:
        config: the config.
        target: the machine.
        dots: matrix products of its TTIR; None before the front end ran.
        features: read off its assembly or, to predict before compiling, its sketch; None if
            neither was read.
    """

    config: Config
    target: Target
    dots: tuple[Dot, ...] | None = None
    features: Features | None = None


class Scorer(ABC):
    """Ranks candidates of one problem on one target; all candidates have features of one moment.

    A subclass sets `name` and defines `score`. The other members have defaults, which suit a
    scorer that ranks compiled configs only, is not trained, and works for every dtype.

    Where a scorer's error is measured (`predict/score/error.py`), a difference of its scores is
    the logarithm of the ratio of predicted times: 0.02 means 2% (`learned` adds a share of the
    roofline's, so that its differences are larger). Scores of other scorers have no scale.

    Attributes:
        name: name on the command line.
        draws: number of random draws that a replay averages; 1 for a deterministic scorer.
        ranks_before_compiling: True if it can rank by the features of sketches as well.
    """

    name: str
    draws: int = 1
    ranks_before_compiling: bool = False

    @abstractmethod
    def score(self, candidates: Sequence[Candidate], draw: int = 0) -> list[float]:
        """Return one number for each candidate; higher is better."""

    def prepare(self) -> None:
        """Load what the first ranking takes, which `score` does otherwise."""
        _ = self.effective_name

    @property
    def effective_name(self) -> str:
        """Name of the scorer that does the ranking: another one where this one cannot be used."""
        return self.name

    def points(self, features: Features) -> Mapping[str, float]:  # noqa: ARG002
        """Return the terms that a score is the sum of, by feature; empty if it is no such sum."""
        return {}

    def notes(self, target: Target) -> tuple[str, ...]:  # noqa: ARG002
        """Return what a reader must know about a ranking for a target."""
        return ()

    def for_dtypes(self, dtypes: Collection[str]) -> Scorer:  # noqa: ARG002
        """Return the scorer for a problem with tensors of these dtypes."""
        return self

    def without_kernel(self, kernel: str) -> Scorer:  # noqa: ARG002
        """Return a scorer that was not trained on timings of a kernel."""
        return self
