"""Judge the configs of one problem, before compiling and after, over one front end."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Iterable, MutableMapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal

from asmtune.base.errors import ParseError
from asmtune.base.settings import Settings
from asmtune.compile.artifacts import ArtifactCache, StoredTtir
from asmtune.compile.lower import Lowering, LowerRequest
from asmtune.compile.pool import Hooks, compile_configs, sketch_configs, warm
from asmtune.compile.worker import CompiledConfig, Workers
from asmtune.core.config import Config
from asmtune.core.failures import of_one_config, required
from asmtune.core.hardware.model import Target
from asmtune.core.problem import Problem, no_launch
from asmtune.core.progress import ProgressListener
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.verdicts import Reason, Verdict
from asmtune.ir.ttir.analysis import Kernel, LaunchArguments
from asmtune.ir.ttir.slots import ConfigSlots
from asmtune.ir.ttir.work import Work
from asmtune.predict.features.amd import reader_for
from asmtune.predict.features.profile import Profile
from asmtune.predict.features.reader import launch_features
from asmtune.predict.features.sketch.reader import SketchReader
from asmtune.predict.prune.ranking import tile_of
from asmtune.predict.score.roofline import predict, rounded_terms
from asmtune.predict.score.rules import RULES, broken_rules
from asmtune.predict.score.scorer import Candidate
from asmtune.triton_api.jit_functions import heuristic_rules

EXACT: Final = tuple(rule for rule in RULES if rule.name == "shared_memory")
"""Rules that a sketch can decide: its shared memory is exact, its registers are estimates."""


def failed(config: Config, failure: Failure) -> Verdict:
    """Return the verdict on a config that a rule refused or that does not compile."""
    stage = "rules" if failure.stage == "rules" else "compile"
    reason = Reason(failure.kind, failure.detail.strip().split("\n")[0])
    return Verdict(config, False, stage, reasons=(reason,), failure=failure)


class Judge:
    """Judges the configs of one problem, first by their IR and then by their assembly.

    `kernels` has parsed TTIR by its text; entries are added.
    """

    def __init__(
        self, problem: Problem, target: Target, kernels: MutableMapping[str, Kernel]
    ) -> None:
        self._problem = problem
        self._target = target
        self._kernels = kernels
        self._launches: dict[tuple[str, tuple[int, int, int]], Work] = {}
        self._slots: dict[tuple[str, tuple[int, int, int]], ConfigSlots] = {}
        self._tensor_bytes = problem.tensor_bytes

    def refusal(self, config: Config, request: LowerRequest) -> Failure | None:
        """Apply the rules that need the IR; return the first broken one, or None."""
        candidate = Candidate(config, self._target)
        # Gluon's kernels choose their tensor instructions themselves.
        with suppress(ParseError):
            dots = () if request.gluon else self._kernel(request.ttir).dots
            candidate = Candidate(config, self._target, dots)
        broken = broken_rules(candidate, "ir", hard=True)
        return Failure("rules", broken[0].rule, broken[0].text) if broken else None

    def verdict(
        self, config: Config, compiled: CompiledConfig[Profile], work: Work, *, estimated: bool
    ) -> Verdict:
        """Apply the rules that need features, and predict the time.

        If the profile is `estimated` by a sketch, only rules that a sketch can decide are applied.
        """
        target = self._target
        features = launch_features(compiled.reading, work, target)
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
            artifact=compiled.digest,
            predicted_us=round(prediction.us, 2),
            bottleneck=prediction.bottleneck,
            terms_us=rounded_terms(prediction.terms_us, prediction.us, 2),
        )

    def work(self, config: Config, ttir: str) -> Work:
        """Return the work of a launch; the same object for all configs of one IR and grid.

        Raises:
            ProblemError: the grid of the config is invalid.
        """
        problem = self._problem
        grid = required(f"grid of {problem.name}", lambda: problem.programs(config))
        launch = (ttir, grid)
        if launch not in self._launches:
            self._launches[launch] = self._analyse(config, *launch)
        return self._launches[launch]

    def slots(self, config: Config, ttir: str) -> ConfigSlots:
        """Return where the programs of a config write, once its work is known."""
        grid = self._problem.programs(config)
        launch = (ttir, grid)
        if launch not in self._slots:
            kernel = self._kernels.get(ttir)
            try:
                call = self._call(config, grid)
                self._slots[launch] = ConfigSlots() if kernel is None else kernel.slots(call)
            except ParseError:
                self._slots[launch] = ConfigSlots()
        return self._slots[launch]

    def _call(self, config: Config, grid: tuple[int, int, int]) -> LaunchArguments:
        return LaunchArguments(
            arguments=self._problem.bind(config),
            grid=grid,
            tensor_bytes=self._tensor_bytes,
            read_table=self._problem.index_table,
        )

    def _kernel(self, ttir: str) -> Kernel:
        if ttir not in self._kernels:
            self._kernels[ttir] = Kernel(ttir)
        return self._kernels[ttir]

    def _analyse(self, config: Config, ttir: str, grid: tuple[int, int, int]) -> Work:
        try:
            return self._kernel(ttir).work(self._call(config, grid))
        except ParseError:
            # The compiler took the text, so the config can run; it is ranked as if
            # no loop took more than one trip.
            return Work.unread(grid)


Moment = Literal["sketch", "assembly"]
"""Moment of a prediction: "sketch" before LLVM, "assembly" after the whole compile."""

Outcomes = MutableMapping[str, CompiledConfig[Profile] | Failure]

_STAGES: Final = {"sketch": "sketch", "assembly": "compile"}


@dataclass(frozen=True)
class ProblemAnalysis:
    """Judges the configs of a problem; lowered IR serves sketches and compiles.

    Attributes:
        problem: the launch.
        target: the machine to judge for.
        settings: limits of a compile, workers, folders.
        progress: listener.
        kernels: TTIR already parsed; filled.
        workers: run the compiles, for every thread that calls.
    """

    problem: Problem
    target: Target
    settings: Settings
    progress: ProgressListener
    kernels: MutableMapping[str, Kernel]
    workers: Workers
    _analysed: dict[Config, tuple[str, Work]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _grids: dict[object, tuple[int, int, int]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def warm(self, moment: Moment = "sketch") -> None:
        """Start the workers, which are ready in a second."""
        reader = type(self._reader(moment)).__module__
        warm(self.target.machine, (reader,), self.settings)

    def stop(self) -> None:
        """End the compiles of other threads; their `verdicts` return what is known by then."""
        self.workers.stop()

    def fork(self) -> ProblemAnalysis:
        """Return one without a listener whose `stop` ends nothing of this one's compiles."""
        other = copy.copy(self)
        object.__setattr__(other, "progress", ProgressListener())
        object.__setattr__(other, "workers", Workers(self.settings.jobs))
        return other

    def verdicts(
        self,
        configs: Sequence[Config],
        moment: Moment,
        known: Outcomes,
        on_verdict: Callable[[Verdict], None] = lambda _: None,
    ) -> list[Verdict]:
        """Return verdicts of rules and compiler, not yet scored, in the order of `configs`.

        Any thread may call this; an exception, or `stop`, leaves no compile running.

        Args:
            configs: to judge.
            moment: "assembly" compiles them; "sketch" goes as far as LLVM, so that features
                are estimates.
            known: outcomes of that moment by digest; filled.
            on_verdict: called with each verdict of the compiler as it comes.
        """
        by_rules = map(self.by_rules, configs)
        verdicts = {i: verdict for i, verdict in enumerate(by_rules) if not verdict.kept}
        left = [position for position in range(len(configs)) if position not in verdicts]
        candidates = [configs[position] for position in left]
        self.progress.start(_STAGES[moment], len(left))
        with closing(self._outcomes(candidates, moment, known)) as outcomes:
            for index, outcome in outcomes:
                verdict = self._verdict(candidates[index], outcome, moment)
                verdicts[left[index]] = verdict
                self.progress.advance()
                on_verdict(verdict)
        return [verdicts[position] for position in sorted(verdicts)]

    def by_options(self, config: Config) -> Verdict:
        """Apply the rules that need only a config's options."""
        broken = broken_rules(Candidate(config, self.target), "config", hard=True)
        return Verdict(config, not broken, "rules" if broken else None, reasons=broken)

    def by_rules(self, config: Config) -> Verdict:
        """Apply the rules that need only a config's values: its options, then its grid."""
        verdict = self.by_options(config)
        lost = self._lost(config) if verdict.kept else None
        return verdict if lost is None else failed(config, lost)

    def grid(self, config: Config) -> tuple[int, int, int] | Failure:
        """Return the programs of a launch, or why the config cannot be launched.

        Configs of one tile share their grid, if no rule of `@triton.heuristics` sees the rest.
        """
        tile = config if any(heuristic_rules(self.problem.kernel)) else tile_of(config)
        if tile not in self._grids:
            grid = self.problem.grid_of(config)
            if isinstance(grid, Failure):
                return grid
            self._grids[tile] = grid
        return self._grids[tile]

    def _lost(self, config: Config) -> Failure | None:
        """Return why a config has no grid; None too where its hook may set what the grid needs."""
        grid = None if config.pre_hook is not None else self.grid(config)
        return grid if isinstance(grid, Failure) else None

    def check_grids(self, configs: Sequence[Config]) -> None:
        """Raise a `ProblemError` if no config is left that has a grid."""
        failures: list[Failure] = []
        for config in configs:
            if (lost := self._lost(config)) is None:
                return
            failures.append(lost)
        raise no_launch(failures)

    def hand_to_triton(self, config: Config) -> None:
        """Spare Triton the compile of a config that is launched next, if it was compiled here."""
        from asmtune.compile.load import hand_to_triton

        hand_to_triton(self.lowering, config, ArtifactCache.of(self.settings))

    def works(self, configs: Sequence[Config]) -> list[Work]:
        """Return the different works of the configs' launches; refused configs are left out."""
        works = (self.work(config) for config in configs if self.by_rules(config).kept)
        return list({id(work): work for work in works if isinstance(work, Work)}.values())

    def work(self, config: Config) -> Work | Failure:
        """Return the work of a config's launch, or why its front end refuses it."""
        if config not in self._analysed:
            request = self.lowering.request(config)
            if isinstance(request, Failure):
                return request
            return self._analyse(config, request)
        return self._analysed[config][1]

    def slots(self, config: Config) -> ConfigSlots:
        """Return where the programs of a config write; nothing of one that cannot be read."""
        if not isinstance(self.work(config), Work):
            return ConfigSlots()
        return self.judge.slots(config, self._analysed[config][0])

    def analysed(self, configs: Iterable[Config]) -> list[Config]:
        """Return the configs whose work is known."""
        return [config for config in configs if config in self._analysed]

    def _analyse(self, config: Config, request: LowerRequest) -> Work | Failure:
        work = of_one_config("rules", "grid", lambda: self.judge.work(config, request.ttir))
        if isinstance(work, Work):
            self._analysed[config] = (request.ttir, work)
        return work

    def _verdict(
        self, config: Config, outcome: CompiledConfig[Profile] | Failure, moment: Moment
    ) -> Verdict:
        if isinstance(outcome, Failure):
            return failed(config, outcome)
        work = self._analysed[config][1]
        return self.judge.verdict(config, outcome, work, estimated=moment == "sketch")

    def _outcomes(
        self, configs: Sequence[Config], moment: Moment, known: Outcomes
    ) -> Generator[tuple[int, CompiledConfig[Profile] | Failure], None, None]:
        hooks = Hooks(self._reader(moment), self._admit, known)
        compiler = sketch_configs if moment == "sketch" else compile_configs
        return compiler(self.lowering, configs, hooks, self.settings, self.workers)

    def _admit(self, config: Config, request: LowerRequest) -> Failure | None:
        """Refuse a config by the rules that need the IR, or note the work of its launch."""
        refused = self.judge.refusal(config, request) or self._analyse(config, request)
        return refused if isinstance(refused, Failure) else None

    def _reader(self, moment: Moment) -> Callable[[Any], Profile]:
        return SketchReader(self.target) if moment == "sketch" else reader_for(self.target)

    @cached_property
    def lowering(self) -> Lowering:
        """Return the front end proper; IR lowered for one config serves others of its tile."""
        return self.new_lowering()

    def new_lowering(self) -> Lowering:
        """Make another front end of the same problem, for another thread."""
        stored = StoredTtir(ArtifactCache.of(self.settings))
        return Lowering(self.problem, self.target, self.settings.compile_timeout_s, stored)

    @cached_property
    def judge(self) -> Judge:
        """Judge by IR and by features; shared by all verdicts."""
        return Judge(self.problem, self.target, self.kernels)
