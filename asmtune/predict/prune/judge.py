"""Verdicts of rules, compiler and roofline on single configs."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Final

from asmtune.base.errors import ParseError
from asmtune.compile.lower import LowerRequest
from asmtune.compile.worker import CompiledConfig
from asmtune.core.config import Config
from asmtune.core.failures import required
from asmtune.core.hardware.model import Target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.verdicts import Reason, Verdict
from asmtune.ir.ttir.analysis import Kernel, LaunchArguments
from asmtune.ir.ttir.dots import Dot, find_dots
from asmtune.ir.ttir.work import Work
from asmtune.predict.features.profile import Profile
from asmtune.predict.features.reader import launch_features
from asmtune.predict.score.base import Candidate
from asmtune.predict.score.roofline import predict
from asmtune.predict.score.rules import RULES, broken_rules

EXACT: Final = tuple(rule for rule in RULES if rule.name == "shared_memory")
"""Rules that a sketch can apply: it knows the shared memory, and estimates registers."""


class Judge:
    """Verdicts on the configs of one problem, as their IR and their assembly come in.

    Args:
        problem: the launch.
        target: the machine to judge for.
        kernels: TTIR already parsed; filled.
    """

    def __init__(
        self, problem: Problem, target: Target, kernels: MutableMapping[str, Kernel]
    ) -> None:
        self._problem = problem
        self._target = target
        self._kernels = kernels
        self._works: dict[Config, Work] = {}
        self._dots: dict[str, tuple[Dot, ...]] = {}
        self._launches: dict[tuple[str, tuple[int, int, int]], Work] = {}
        self._tensor_bytes = problem.tensor_bytes

    def admit(self, config: Config, request: LowerRequest) -> Failure | None:
        """Applies the rules that need the IR, and weighs the launch."""
        if request.ttir not in self._dots:
            self._dots[request.ttir] = find_dots(request.ttir)
        candidate = Candidate(config, self._target, self._dots[request.ttir])
        broken = broken_rules(candidate, "ir", hard=True)
        if broken:
            return Failure("rules", broken[0].rule, broken[0].text)
        self._works[config] = self.work(config, request.ttir)
        return None

    def verdict(
        self, config: Config, outcome: CompiledConfig[Profile] | Failure, *, estimated: bool = False
    ) -> Verdict:
        """What is known of a config once its compile, or if `estimated` its sketch, has ended."""
        if isinstance(outcome, Failure):
            stage = "rules" if outcome.stage == "rules" else "compile"
            reason = Reason(outcome.kind, outcome.detail.strip().split("\n")[0])
            return Verdict(config, False, stage, reasons=(reason,), failure=outcome)
        target = self._target
        features = launch_features(outcome.reading, self._works[config], target)
        candidate = Candidate(config, target, features=features)
        rules = EXACT if estimated else RULES
        broken = broken_rules(candidate, "assembly", hard=True, rules=rules)
        prediction = predict(features, target)
        return Verdict(
            config,
            kept=not broken,
            dropped_at="rules" if broken else None,
            reasons=broken or broken_rules(candidate, "assembly", hard=False, rules=rules),
            features=features,
            artifact=outcome.digest,
            predicted_us=round(prediction.us, 2),
            bottleneck=prediction.bottleneck,
        )

    def known_work(self, config: Config) -> Work | None:
        """What a launch of an admitted config asks for; None of one that was not admitted."""
        return self._works.get(config)

    def work(self, config: Config, ttir: str) -> Work:
        """What a launch asks for; the same for all configs of one IR and grid.

        Raises:
            ProblemError: the grid of the config is none.
        """
        problem = self._problem
        grid = required(f"grid of {problem.name}", lambda: problem.programs(config))
        launch = (ttir, grid)
        if launch not in self._launches:
            self._launches[launch] = self._analyse(config, *launch)
        return self._launches[launch]

    def _analyse(self, config: Config, ttir: str, grid: tuple[int, int, int]) -> Work:
        kernels = self._kernels
        call = LaunchArguments(
            arguments=self._problem.bind(config),
            grid=grid,
            tensor_bytes=self._tensor_bytes,
            processors=self._target.sms,
        )
        try:
            if ttir not in kernels:
                kernels[ttir] = Kernel(ttir)
            return kernels[ttir].work(call)
        except ParseError:
            # The compiler took the text, so the config can run; it is ranked as if
            # no loop took more than one trip.
            return Work.unread(grid)
