"""Verdicts on the configs of one problem, before compiling and after, over one front end."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

from asmtune.compile import Compiled, Hooks, Lowering, compile_configs, sketch_configs
from asmtune.config import Config
from asmtune.features import Profile, ProfileReader
from asmtune.features.sketch import SketchReader
from asmtune.funnel.judge import Judge
from asmtune.funnel.progress import Progress
from asmtune.problem import Problem
from asmtune.records import Failure, Verdict
from asmtune.score import Candidate, broken_rules
from asmtune.settings import Settings
from asmtune.target import Target
from asmtune.workload import Kernel

Moment = Literal["sketch", "assembly"]
"""When a prediction is made: of what a compile has before LLVM, or of all of it."""

Outcomes = MutableMapping[str, Compiled[Profile] | Failure]

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
    """

    problem: Problem
    target: Target
    settings: Settings
    progress: Progress
    kernels: MutableMapping[str, Kernel]

    def verdicts(self, configs: Sequence[Config], moment: Moment, known: Outcomes) -> list[Verdict]:
        """Verdicts of rules and compiler, not yet scored, in the order of `configs`.

        Args:
            configs: to judge.
            moment: "assembly" compiles them; "sketch" goes as far as LLVM, so that features
                are estimates.
            known: outcomes of that moment by digest; filled.
        """
        verdicts: dict[int, Verdict] = {}
        for position, config in enumerate(configs):
            broken = broken_rules(Candidate(config, self.target), "config", hard=True)
            if broken:
                verdicts[position] = Verdict(config, False, "rules", reasons=broken)
        left = [position for position in range(len(configs)) if position not in verdicts]
        asked = [configs[position] for position in left]
        self.progress.start(_TOLD[moment], len(left))
        for index, outcome in self._outcomes(asked, moment, known):
            verdicts[left[index]] = self._judge.verdict(
                asked[index], outcome, estimated=moment == "sketch"
            )
            self.progress.advance()
        return [verdicts[position] for position in range(len(configs))]

    def _outcomes(
        self, configs: Sequence[Config], moment: Moment, known: Outcomes
    ) -> Iterator[tuple[int, Compiled[Profile] | Failure]]:
        admit = self._judge.admit
        if moment == "sketch":
            hooks = Hooks(SketchReader(self.target), admit, known)
            return sketch_configs(self._lowering, configs, hooks, self.settings)
        hooks = Hooks(ProfileReader(self.target), admit, known)
        return compile_configs(self._lowering, configs, hooks, self.settings)

    @cached_property
    def _lowering(self) -> Lowering:
        return Lowering(self.problem, self.target, self.settings.compile_timeout_s)

    @cached_property
    def _judge(self) -> Judge:
        return Judge(self.problem, self.target, self.kernels)
