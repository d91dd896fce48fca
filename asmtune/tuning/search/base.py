"""The parts of a search: limits, strategy, compiler and timer, and the axes of its configs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from asmtune.core.config import OPTION_AXES, Config
from asmtune.core.hardware.model import Target
from asmtune.core.records.tuned import Outcome
from asmtune.core.records.verdicts import Verdict
from asmtune.predict.score.scorer import Scorer
from asmtune.tuning.search.state import SearchState


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a search; the default config is compiled and timed in any case.

    Attributes:
        seconds: wall clock, from the start of the loop.
        compiles: configs compiled, those that fail among them; None for no limit.
        finalists: number of the fastest configs that are timed again at the end.
    """

    seconds: float = math.inf
    compiles: int | None = None
    finalists: int = 8


@dataclass(frozen=True, kw_only=True)
class BatchSizes:
    """Sizes of a search's steps.

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
    """A scorer and the target that it predicts for.

    Attributes:
        scorer: ranks; not used before compiling if it cannot rank sketches.
        target: the machine.
    """

    scorer: Scorer
    target: Target


@dataclass(frozen=True)
class Proposal:
    """The configs to compile next.

    Attributes:
        configs: best first; none where it is not worth it.
        gain: expected gain, as a share of the best time so far; None where
            the strategy has no expectation.
        reason: why no config is proposed.
        as_they_come: whether each is timed as soon as it is compiled, and not with its batch.
    """

    configs: tuple[Config, ...] = ()
    gain: float | None = None
    reason: str = ""
    as_they_come: bool = False


@dataclass(frozen=True)
class SearchResult:
    """Why a search ended, with its numbers, and `SearchState.finalists` (none if nothing ran)."""

    reason: str
    finalists: tuple[Verdict, ...]


class Strategy(Protocol):
    """Chooses what to compile and time; keeps nothing that the state does not hold."""

    @property
    def name(self) -> str:
        """Return the name on the command line."""

    def propose(self, state: SearchState) -> Proposal:
        """Propose configs to compile next, of those in `state.open()`."""

    def select(self, state: SearchState) -> Sequence[Config]:
        """Select configs to time now, of those in `state.ready()`, best first.

        Those in `state.due()` are timed in any case.
        """


class Compiler(Protocol):
    """Compiles one batch at a time, in the background."""

    def start(self, configs: Sequence[Config]) -> None:
        """Start a batch, and return at once."""

    def collect(self) -> Sequence[Verdict]:
        """Wait for the batch.

        For a streamed batch, wait for its next verdicts; return an empty list at the end.
        """


class TrialTimer(Protocol):
    """Checks and times compiled configs."""

    def trial(self, verdicts: Sequence[Verdict]) -> Sequence[Outcome]:
        """Return a timing or a failure of each; the first trial begins with the default."""


Place = tuple[int, ...]

_OPTION_NAMES: Final = (*OPTION_AXES, "ir_override")  # files of edited IR differ here alone


class Axes:
    """The values that some configs take, in order: numbers by size, None (no limit) last."""

    def __init__(self, configs: Sequence[Config]) -> None:
        points = [
            {**config.kwargs, **{name: getattr(config, name) for name in _OPTION_NAMES}}
            for config in configs
        ]
        names = dict.fromkeys(name for point in points for name in point)
        self._index: dict[str, dict[tuple[int, Any], int]] = {}
        for name in names:
            values = sorted({_rank(point.get(name)) for point in points})
            if len(values) > 1:
                self._index[name] = {value: place for place, value in enumerate(values)}
        self.places: dict[Config, Place] = {
            config: tuple(index[_rank(point.get(name))] for name, index in self._index.items())
            for config, point in zip(configs, points, strict=True)
        }

    def coordinates(self, configs: Sequence[Config]) -> NDArray[np.float64]:
        """Return a row a config, a column an axis of more than one value, from 0 to 1."""
        most = [len(index) - 1 for index in self._index.values()]
        places = np.array([self.places[config] for config in configs], dtype=np.float64)
        return places.reshape(len(configs), len(most)) / np.array(most, dtype=np.float64)


def _rank(value: Any) -> tuple[int, Any]:
    """Make a sort key of any axis: numbers first, then text, then None."""
    if value is None:
        return 2, 0
    return (0, value) if isinstance(value, bool | int | float) else (1, str(value))
