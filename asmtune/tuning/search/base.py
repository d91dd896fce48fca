"""What a search is made of: a strategy, who compiles, who times, who watches, and limits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.records.tuned import Outcome
from asmtune.core.records.verdicts import Verdict
from asmtune.predict.score.scorers import Scorer
from asmtune.tuning.search.state import State


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a search may spend; the default config is compiled and timed in any case.

    Attributes:
        seconds: of wall clock, from the start of the loop.
        compiles: configs compiled, those that fail among them; None for no limit.
        timings: configs tried on the GPU, likewise.
        finalists: of the fastest, how many are worth timing again at the end.
    """

    seconds: float = math.inf
    compiles: int | None = None
    timings: int | None = None
    finalists: int = 8


@dataclass(frozen=True, kw_only=True)
class BatchSizes:
    """In which steps a search goes on.

    Attributes:
        first: configs of the first batch of compiles.
        batch: configs of every later one; a multiple of the compile workers keeps all busy.
        trial: configs that are timed at once, at most.
        gain: the search ends where the expected gain of the next batch, as a share of the
            best time, is below it; for strategies that expect one.
    """

    first: int = 32
    batch: int = 24
    trial: int = 16
    gain: float = 0.02


@dataclass(frozen=True)
class Predictor:
    """What predicts.

    Attributes:
        scorer: ranks; one that cannot before compiling is not asked.
        target: the machine.
    """

    scorer: Scorer
    target: Target


@dataclass(frozen=True)
class Proposal:
    """What to compile next.

    Attributes:
        configs: best first; none where it is not worth it.
        gain: what they are expected to win, as a share of the best time so far; None where
            the strategy has no expectation.
        reason: why there are none.
    """

    configs: tuple[Config, ...] = ()
    gain: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class Ended:
    """How a search ended.

    Attributes:
        reason: why, in words, with its numbers.
        finalists: see `State.finalists`; none where nothing ran.
    """

    reason: str
    finalists: tuple[Verdict, ...]


class Strategy(Protocol):
    """Chooses; keeps nothing from call to call that the state does not hold."""

    @property
    def name(self) -> str:
        """Name on the command line."""
        ...

    def propose(self, state: State) -> Proposal:
        """Configs to compile next, of those in `state.open()`."""
        ...

    def select(self, state: State) -> Sequence[Config]:
        """Configs to time now, of those in `state.ready()`, best first.

        Those in `state.due()` are timed in any case.
        """
        ...


class Compiler(Protocol):
    """Compiles one batch at a time, in the background."""

    def start(self, configs: Sequence[Config]) -> None:
        """Begins a batch, and returns at once."""
        ...

    def collect(self) -> Sequence[Verdict]:
        """Waits for the batch. It may hold configs that nobody asked for: they join the space."""
        ...


class Timer(Protocol):
    """Checks and times compiled configs."""

    def trial(self, verdicts: Sequence[Verdict]) -> Sequence[Outcome]:
        """A timing or a failure of each; the default config comes first, in the first trial."""
        ...


class Observer(Protocol):
    """Told of each stage as it ends."""

    def foreseen(self, state: State) -> None:
        """The search begins, with what is known before anything is compiled."""

    def batch(self, verdicts: Sequence[Verdict], seconds: float) -> None:
        """A batch is compiled; the loop waited so long for it."""

    def trial(self, outcomes: Sequence[Outcome], gain: float | None) -> None:
        """Configs are timed; the batch compiled meanwhile is expected to gain so much."""

    def ended(self, reason: str) -> None:
        """The search is over."""


class NoObserver:
    """Listens to nothing."""

    def foreseen(self, state: State) -> None:
        """Ignores it."""

    def batch(self, verdicts: Sequence[Verdict], seconds: float) -> None:
        """Ignores it."""

    def trial(self, outcomes: Sequence[Outcome], gain: float | None) -> None:
        """Ignores it."""

    def ended(self, reason: str) -> None:
        """Ignores it."""
