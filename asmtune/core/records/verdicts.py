"""What the funnel says of one config, and why."""

from __future__ import annotations

from dataclasses import dataclass

from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.features import Features


@dataclass(frozen=True)
class Reason:
    """Why a config was dropped, or what holds it back: a rule's name and its numbers."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


@dataclass(frozen=True)
class Verdict:
    """What the funnel says of one config.

    Attributes:
        config: the config.
        kept: whether it is worth timing.
        dropped_at: "rules", "sketch", "compile" or "score"; None where it is kept. What fell
            at "sketch" was not compiled: a prediction before compiling left it out.
        rank: 1 for the scorer's favourite; None where it was not scored.
        score: higher is better; its scale is the scorer's own.
        reasons: why it was dropped, and remarks of the rules that only warn.
        features: of the compiled config; None where it did not compile.
        failure: of the compile, where it failed.
        artifact: digest of the compiled artifact.
        predicted_us: microseconds of the launch by the roofline, whatever ranked; before
            compiling where it fell at "sketch".
        bottleneck: what takes most of them.
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
