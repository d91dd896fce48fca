"""Verdicts on the configs of one problem, before compiling and after, over one front end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, MutableMapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

from asmtune.base.settings import Settings
from asmtune.compile.lower import Lowering
from asmtune.compile.pool import Hooks, compile_configs, sketch_configs, warm
from asmtune.compile.worker import CompiledConfig
from asmtune.compile.workers import Workers
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.verdicts import Verdict
from asmtune.ir.ttir.analysis import Kernel
from asmtune.ir.ttir.work import Work
from asmtune.predict.features.profile import Profile
from asmtune.predict.features.reader import ProfileReader
from asmtune.predict.features.sketch.reader import SketchReader
from asmtune.predict.prune.judge import Judge
from asmtune.predict.score.base import Candidate
from asmtune.predict.score.rules import broken_rules

if TYPE_CHECKING:
    from asmtune.core.records.tuned import Outcome
    from asmtune.store.trace.run import Ending, Header


class ProgressListener:
    """Base class of what is told how far work is: each method does nothing.

    A subclass defines the methods that it needs. The first two are called by the funnel, those
    from `search_started` to `search_ended` by a search, the others by tuning.
    """

    def start(self, stage: str, total: int) -> None:
        """Note that a stage of `total` steps begins."""

    def advance(self) -> None:
        """Note that one step of the stage is done."""

    def waiting(self, holder: str) -> None:
        """Note that another process, named `holder`, tunes the key and is waited for."""

    def begin(self, header: Header) -> None:
        """Note that a tuning run begins."""

    def stage(self, name: str) -> None:
        """Note that a stage of a run begins."""

    def progress(self, state: Any) -> None:
        """Note that more is compiled or timed; `state` is a `search.state.State`."""

    def search_started(self, state: Any) -> None:
        """Note that a search begins, with what is known before anything is compiled."""

    def batch(self, verdicts: Sequence[Verdict], seconds: float) -> None:
        """Note that a batch is compiled, and that the search waited `seconds` for it."""

    def trial(self, outcomes: Sequence[Outcome], gain: float | None) -> None:
        """Note that configs are timed; `gain` is expected of the batch compiled meanwhile."""

    def search_ended(self, reason: str) -> None:
        """Note that a search is over."""

    def end(self, ending: Ending) -> None:
        """Note that a run has ended."""


Moment = Literal["sketch", "assembly"]
"""When a prediction is made: of what a compile has before LLVM, or of all of it."""

Outcomes = MutableMapping[str, CompiledConfig[Profile] | Failure]

_TOLD: Final = {"sketch": "sketch", "assembly": "compile"}


@dataclass(frozen=True)
class Front:
    """The front end of a problem: what it made for one moment serves the other.

    Attributes:
        problem: the launch.
        target: the machine to judge for.
        settings: limits of a compile, workers, folders.
        progress: told how far it is.
        kernels: TTIR already parsed; filled.
        workers: run the compiles, whatever thread asks for them.
    """

    problem: Problem
    target: Target
    settings: Settings
    progress: ProgressListener
    kernels: MutableMapping[str, Kernel]
    workers: Workers

    def warm(self, moment: Moment = "sketch") -> threading.Thread:
        """Starts the workers in the background: a second that can pass meanwhile."""
        return warm(self.lowering, self._reader(moment), self.settings, self.workers)

    def stop(self) -> None:
        """Ends the compiles of other threads; their `verdicts` give what is known by then."""
        self.workers.stop()

    def verdicts(self, configs: Sequence[Config], moment: Moment, known: Outcomes) -> list[Verdict]:
        """Verdicts of rules and compiler, not yet scored, in the order of `configs`.

        Any thread may ask; an exception, or `stop`, leaves no compile running.

        Args:
            configs: to judge.
            moment: "assembly" compiles them; "sketch" goes as far as LLVM, so that features
                are estimates.
            known: outcomes of that moment by digest; filled.
        """
        verdicts: dict[int, Verdict] = {}
        for position, config in enumerate(configs):
            verdict = self.by_rules(config)
            if not verdict.kept:
                verdicts[position] = verdict
        left = [position for position in range(len(configs)) if position not in verdicts]
        asked = [configs[position] for position in left]
        self.progress.start(_TOLD[moment], len(left))
        with closing(self._outcomes(asked, moment, known)) as outcomes:
            for index, outcome in outcomes:
                verdicts[left[index]] = self._judge.verdict(
                    asked[index], outcome, estimated=moment == "sketch"
                )
                self.progress.advance()
        return [verdicts[position] for position in sorted(verdicts)]

    def by_rules(self, config: Config) -> Verdict:
        """What rules say of a config before anything is known of it but its values."""
        broken = broken_rules(Candidate(config, self.target), "config", hard=True)
        return Verdict(config, not broken, "rules" if broken else None, reasons=broken)

    def works(self, configs: Sequence[Config]) -> list[Work]:
        """What launches of configs ask for, each that differs once; those refused left out."""
        works = (self._work(config) for config in configs)
        return list({id(work): work for work in works if work is not None}.values())

    def _work(self, config: Config) -> Work | None:
        known = self._judge.known_work(config)
        if known is not None or not self.by_rules(config).kept:
            return known
        request = self.lowering.request(config)
        return None if isinstance(request, Failure) else self._judge.work(config, request.ttir)

    def _outcomes(
        self, configs: Sequence[Config], moment: Moment, known: Outcomes
    ) -> Generator[tuple[int, CompiledConfig[Profile] | Failure], None, None]:
        hooks = Hooks(self._reader(moment), self._judge.admit, known)
        made = sketch_configs if moment == "sketch" else compile_configs
        return made(self.lowering, configs, hooks, self.settings, self.workers)

    def _reader(self, moment: Moment) -> Callable[[Any], Profile]:
        return SketchReader(self.target) if moment == "sketch" else ProfileReader(self.target)

    @cached_property
    def lowering(self) -> Lowering:
        """The front end proper: what it lowered for one config serves others of its tile."""
        return Lowering(self.problem, self.target, self.settings.compile_timeout_s)

    @cached_property
    def _judge(self) -> Judge:
        return Judge(self.problem, self.target, self.kernels)
