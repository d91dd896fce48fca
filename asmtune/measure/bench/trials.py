"""Trials in one process: each config is loaded, checked, and then timed against the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from asmtune.compile.load import LoadedLaunch
from asmtune.core.config import Config
from asmtune.core.failures import guarded
from asmtune.core.records.artifacts import Failure
from asmtune.measure.bench.base import Outcome, TimingPlan
from asmtune.measure.bench.gpu import BenchGpu, DeviceLossCheck, WatchedClock
from asmtune.measure.bench.user_timer import UserTimer
from asmtune.measure.checks.checker import OutputChecker
from asmtune.measure.timing.clock import Subject
from asmtune.measure.timing.race import Race


@dataclass(frozen=True)
class LoadableConfig:
    """A config that can be loaded in this process."""

    config: Config
    load: Callable[[], LoadedLaunch | Failure]


class Timer(Protocol):
    """What times subjects: a race, or the user's function."""

    def trial(self, subjects: Sequence[Subject]) -> list[Outcome]:
        """What is found of each, in their order."""
        ...

    def final(self, subjects: Sequence[Subject]) -> list[Outcome]:
        """What is found of each afresh, in their order."""
        ...


class Trials:
    """Checks and times candidates on one device.

    Attributes:
        reference: the config whose output the others must equal; None before one ran.

    Args:
        machine: the device.
        rehearsal: keeps the arguments; checks outputs.
        contest: times.
        announce: told each config before it runs.
    """

    def __init__(
        self,
        machine: BenchGpu,
        rehearsal: OutputChecker,
        contest: Timer,
        announce: Callable[[Config], None] | None = None,
    ) -> None:
        self.reference: Config | None = None
        self._machine = machine
        self._rehearsal = rehearsal
        self._contest_by = contest
        self._announce = announce
        self._checked: set[Config] = set()
        self._default: Config | None = None
        self._notes: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know of how outputs were checked."""
        return (*self._notes, *self._rehearsal.notes)

    def begin(self, default: LoadableConfig) -> Outcome:
        """Makes the default's output the reference, and times it."""
        self._default = default.config
        (outcome,) = self.trial([default])
        return outcome

    def trial(self, candidates: Sequence[LoadableConfig]) -> list[Outcome]:
        """Checks and races candidates; outcomes in their order.

        Raises:
            DeviceLostError: one broke the context.
        """
        return self._contest(candidates, self._contest_by.trial)

    def final(self, candidates: Sequence[LoadableConfig]) -> list[Outcome]:
        """Times candidates afresh, interleaved; outcomes in their order.

        Raises:
            DeviceLostError: one broke the context.
        """
        return self._contest(candidates, self._contest_by.final)

    def energy(self, candidate: LoadableConfig) -> float | None:
        """Millijoules of one launch; None where there is no meter, or the candidate fails.

        Raises:
            DeviceLostError: it broke the context.
        """
        subject = self._subject(candidate)
        if isinstance(subject, Failure):
            return None
        found = guarded("launch", lambda: self._machine.energy(subject))
        if isinstance(found, Failure):
            DeviceLossCheck(self._machine, [candidate.config]).confirm(found.detail)
            return None
        return found

    def _contest(
        self,
        candidates: Sequence[LoadableConfig],
        timed: Callable[[Sequence[Subject]], list[Outcome]],
    ) -> list[Outcome]:
        ready = [self._subject(candidate) for candidate in candidates]
        results = iter(timed([subject for subject in ready if isinstance(subject, Subject)]))
        return [
            (candidate.config, made) if isinstance(made, Failure) else next(results)
            for candidate, made in zip(candidates, ready, strict=True)
        ]

    def _subject(self, candidate: LoadableConfig) -> Subject | Failure:
        """A candidate ready for the clock, if what it computes is right."""
        config = candidate.config
        if self._announce is not None:
            self._announce(config)
        launch = guarded("launch", candidate.load)
        if isinstance(launch, Failure):
            return launch
        failure = None if config in self._checked else self._examined(config, launch)
        if failure is not None:
            DeviceLossCheck(self._machine, [config]).confirm(failure.detail)
            return failure
        self._checked.add(config)

        def prepare() -> None:
            self._rehearsal.prepare()
            launch.prepare()

        return Subject(config, launch.run, prepare, launch.finish, always=config == self._default)

    def _examined(self, config: Config, launch: LoadedLaunch) -> Failure | None:
        """Why a config's output does not count; the first that has one is the reference."""

        def run() -> None:
            launch.prepare()
            launch.run()

        if self.reference is not None:
            return self._rehearsal.check(run, launch.finish)
        failure = self._rehearsal.set_reference(run, launch.finish)
        if failure is None:
            self.reference = config
            if config != self._default:
                said = f"the default gives no reference: outputs are compared with {config}'s"
                self._notes = (said,)
        return failure


def trials_on(
    machine: BenchGpu,
    rehearsal: OutputChecker,
    plan: TimingPlan,
    announce: Callable[[Config], None] | None = None,
) -> Trials:
    """Trials on a device, timed by the user's function or in a race of their own."""
    if plan.do_bench is not None:
        given = UserTimer(plan.do_bench, machine, announce)
        return Trials(machine, rehearsal, given, announce)
    clock = WatchedClock(machine.clock(plan.policy), machine, announce)
    race = Race(clock, plan.policy, plan.seed)
    return Trials(machine, rehearsal, race, announce)
