"""Verdicts: the funnel's decision on one config, with its reasons."""

from __future__ import annotations

from dataclasses import dataclass

from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.features import Features


@dataclass(frozen=True)
class Reason:
    """A rule's name, and in numbers why it dropped a config or warns of it."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


@dataclass(frozen=True)
class Verdict:
    """The funnel's decision on one config.

    Attributes:
        config: the config.
        kept: True if it is to be timed.
        dropped_at: "rules", "sketch", "compile" or "score"; None if it is kept. A config
            dropped at "sketch" was not compiled: its predicted rank was too low.
        rank: 1 for the best score; None if it was not scored.
        score: higher is better; each scorer has its own scale.
        reasons: of the rule that dropped it, and of rules that only warn.
        features: of the compiled config; None if it did not compile.
        failure: why the compile failed, if it did.
        artifact: digest of the compiled artifact.
        predicted_us: microseconds of a launch by the roofline model, with any scorer; from
            the sketch if it was dropped there.
        bottleneck: the resource that limits this time.
    """

    config: Config
    kept: bool
    dropped_at: str | None = None
    rank: int | None = None
    score: float | None = None
    reasons: tuple[Reason, ...] = ()
    features: Features | None = None
    failure: Failure | None = None
    artifact: str | None = None
    predicted_us: float | None = None
    bottleneck: str | None = None
