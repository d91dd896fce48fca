"""Loads configs on one GPU of this process, checks them, and times them against each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from asmtune.base.errors import InputError, MeasureError, NoGpuError
from asmtune.compile.load import Binary, LoadedLaunch, launch_of
from asmtune.core.config import Config
from asmtune.core.failures import guarded
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement, Outcome
from asmtune.ir.ttir.slots import ConfigSlots
from asmtune.measure.bench.base import QUANTILES, DoBench, TimingSetup
from asmtune.measure.checks.checker import OutputChecker
from asmtune.measure.timing.clock import Clock, GpuClock, Subject, short_switch_interval
from asmtune.measure.timing.nvml import device_name
from asmtune.measure.timing.policy import TimingPolicy
from asmtune.measure.timing.race import Race
from asmtune.triton_api.user_state import outside, within


class BenchGpu:
    """Runs and times launches on PyTorch's current CUDA device.

    Attributes:
        name: the GPU's name as its driver gives it.

    Raises:
        NoGpuError: PyTorch finds no CUDA device.
    """

    def __init__(self) -> None:
        import torch

        if not torch.cuda.is_available():
            raise NoGpuError("timing needs a CUDA GPU; PyTorch finds none on this machine")
        self.name = device_name()

    def clock(self, policy: TimingPolicy) -> Clock:
        """Return a clock that takes samples on it."""
        return GpuClock(policy)

    def launch(
        self, binary: Binary, values: Mapping[str, Any], pre_hook: Callable[..., Any] | None
    ) -> LoadedLaunch:
        """Make a launch of a binary; the GPU loads it at its first launch."""
        return launch_of(binary, values, pre_hook)

    def synchronize(self) -> None:
        """Wait for all launches and raise their errors, every time if the context is broken."""
        import torch

        torch.cuda.synchronize()


class DeviceLostError(MeasureError):
    """Says that a launch broke this process's CUDA context: every later call would fail.

    Attributes:
        config: the config that did it, or one of those that were timed together.
        detail: the driver's message.
    """

    def __init__(self, configs: Sequence[Config], detail: str) -> None:
        self.config = configs[0]
        self.detail = detail
        first = detail.strip().splitlines()[0] if detail.strip() else "no message"
        number = len(configs)
        who = str(self.config) if number == 1 else f"one of {number} configs timed together"
        super().__init__(
            f"{who} broke this process's CUDA context ({first}): nothing can run on this GPU "
            "here any more. Start again with isolate=True (--isolate), where it costs that "
            "config alone"
        )


def confirm_device(machine: BenchGpu, configs: Sequence[Config], detail: str) -> None:
    """Check after a failure of some configs that the device still works.

    Raises:
        DeviceLostError: it does not.
    """
    if isinstance(guarded("launch", machine.synchronize), Failure):
        raise DeviceLostError(configs, detail)


@dataclass(frozen=True)
class WatchedClock:
    """Wraps a clock: notices a lost device, and can announce each config before it runs.

    Attributes:
        clock, machine: the clock, and the device that it times on.
        announce: called with each config before it runs. With it, configs run one at a time, so
            that a config that hangs is known: 20-50 us more per sample, outside the intervals.
    """

    clock: Clock
    machine: BenchGpu
    announce: Callable[[Config], None] | None = None

    def warm_up(self, subject: Subject) -> Failure | None:
        """Load a subject and run it once; return why it cannot."""
        if self.announce is not None:
            self.announce(subject.config)
        failure = self.clock.warm_up(subject)
        if failure is not None:
            confirm_device(self.machine, [subject.config], failure.detail)
        return failure

    def round(self, subjects: Sequence[Subject]) -> list[float]:
        """Take one sample of each in microseconds, in this order."""
        if self.announce is None:
            return self._sampled(subjects)
        samples = []
        for subject in subjects:
            self.announce(subject.config)
            samples += self._sampled([subject])
        return samples

    def _sampled(self, subjects: Sequence[Subject]) -> list[float]:
        try:
            return self.clock.round(subjects)
        except Exception as error:
            configs = [subject.config for subject in subjects]
            confirm_device(self.machine, configs, f"{type(error).__name__}: {error}")
            raise


_US: Final = 1e3
_FORM: Final = "expected milliseconds above 0: [median, p20, p80] or one number"


@dataclass(frozen=True)
class UserTimer:
    """Times subjects one after another with the user's function, in place of a race.

    Its argument does everything around a launch: restores what the kernel wrote, calls hooks,
    launches, calls hooks. The function decides how often to call it, and what to time.

    Attributes:
        do_bench, machine: the function, and the device that it times on.
        announce: called with each config before it runs.
    """

    do_bench: DoBench
    machine: BenchGpu
    announce: Callable[[Config], None] | None = None

    def trial(self, subjects: Sequence[Subject]) -> list[Outcome]:
        """Return a timing or a failure of each, in order.

        Raises:
            InputError: the function does not launch anything, or gives no times.
            DeviceLostError: a subject broke the context.
        """
        return [(subject.config, self._timed(subject)) for subject in subjects]

    final = trial

    def _timed(self, subject: Subject) -> Measurement | Failure:
        if self.announce is not None:
            self.announce(subject.config)
        calls = 0

        @outside()
        def kernel_call() -> None:
            nonlocal calls
            calls += 1
            subject.prepare()
            subject.run()
            subject.finish()

        with short_switch_interval():
            timed = partial(within(self.do_bench), kernel_call, quantiles=QUANTILES)
            returned = guarded("launch", timed)
        if isinstance(returned, Failure):
            confirm_device(self.machine, [subject.config], returned.detail)
            if not calls:
                message = returned.detail.strip().splitlines()[0]
                raise InputError(f"do_bench failed before it launched anything: {message}")
            return returned
        return timed_by_user(subject.config, returned)


def timed_by_user(config: Config, returned: Any) -> Measurement | Failure:
    """Return what a clock in the form of `do_bench` gave as a timing; a failure if it is infinite.

    Raises:
        InputError: it gave neither one number nor three.
    """
    times = _times(returned)
    if any(math.isinf(time) for time in times):
        return Failure("launch", "untimed", f"do_bench gave {returned}")
    median_us, p20_us, p80_us = (time * _US for time in (times * 3)[:3])
    # What it gives are no samples, of which a deviation could be computed.
    return Measurement(config, median_us, p20_us, p80_us, (median_us,))


def _times(returned: Any) -> tuple[float, ...]:
    listed = list(returned) if isinstance(returned, list | tuple) else [returned]
    # Numbers of NumPy and PyTorch are accepted too.
    times = guarded("input", lambda: tuple(float(time) for time in listed))
    counts = (1, len(QUANTILES))
    if isinstance(times, Failure) or len(times) not in counts or not all(t > 0 for t in times):
        raise InputError(f"do_bench gave {returned!r:.60}: {_FORM}")
    return times


@dataclass(frozen=True)
class LoadableConfig:
    """Pairs a config with the function that loads it in this process; `slots` are its IR's."""

    config: Config
    load: Callable[[], LoadedLaunch | Failure]
    slots: ConfigSlots = field(default_factory=ConfigSlots)


class Trials:
    """Checks and times candidates on one device.

    Attributes:
        checker: checks outputs.
        reference: the config whose output the others must equal; None before one has run.

    Args:
        setup: how configs are checked and timed.
        arguments: the launch's, by parameter name.
        machine: the device.
        announce: called with each config before it runs.
    """

    def __init__(
        self,
        setup: TimingSetup,
        arguments: Mapping[str, Any],
        machine: BenchGpu,
        announce: Callable[[Config], None] | None = None,
    ) -> None:
        self.checker = OutputChecker(arguments, setup.effects, setup.checks)
        self.reference: Config | None = None
        self._machine = machine
        self._announce = announce
        self._timer: Race | UserTimer
        if setup.do_bench is not None:
            self._timer = UserTimer(setup.do_bench, machine, announce)
        else:
            clock = WatchedClock(machine.clock(setup.policy), machine, announce)
            self._timer = Race(clock, setup.policy, setup.seed)
        self._checked: dict[Config, float | None] = {}  # with the error that was measured
        self._default: Config | None = None
        self._notes: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Return remarks on how outputs were checked."""
        return (*self._notes, *self.checker.notes)

    def begin(self, default: LoadableConfig) -> Outcome:
        """Make the default config's output the reference, and time the config."""
        self._default = default.config
        (outcome,) = self.trial([default])
        return outcome

    def trial(self, candidates: Sequence[LoadableConfig]) -> list[Outcome]:
        """Check and race candidates, and return outcomes in order.

        Raises:
            DeviceLostError: one broke the context.
        """
        return self._time(candidates, self._timer.trial)

    def final(self, candidates: Sequence[LoadableConfig]) -> list[Outcome]:
        """Time candidates again, interleaved, and return outcomes in order.

        Raises:
            DeviceLostError: one broke the context.
        """
        return self._time(candidates, self._timer.final)

    def _time(
        self,
        candidates: Sequence[LoadableConfig],
        timed: Callable[[Sequence[Subject]], list[Outcome]],
    ) -> list[Outcome]:
        ready = [self._subject(candidate) for candidate in candidates]
        outcomes = timed([subject for subject in ready if isinstance(subject, Subject)])
        results = iter([self._with_error(outcome) for outcome in outcomes])
        return [
            (candidate.config, subject) if isinstance(subject, Failure) else next(results)
            for candidate, subject in zip(candidates, ready, strict=True)
        ]

    def _with_error(self, outcome: Outcome) -> Outcome:
        config, result = outcome
        error = self._checked[config]
        if isinstance(result, Failure) or error is None:
            return outcome
        return config, replace(result, error=error)

    def _subject(self, candidate: LoadableConfig) -> Subject | Failure:
        """Load a candidate and check its output; return it ready for the clock."""
        config = candidate.config
        if self._announce is not None:
            self._announce(config)
        launch = guarded("launch", candidate.load)
        if isinstance(launch, Failure):
            return launch
        if config not in self._checked:
            failure = self._check_output(candidate, launch)
            if failure is not None:
                confirm_device(self._machine, [config], failure.detail)
                return failure
            self._checked[config] = self.checker.error

        def prepare() -> None:
            self.checker.prepare()
            launch.prepare()

        def finish() -> None:
            launch.complete()
            launch.finish()

        return Subject(config, launch.run, prepare, finish, always=config == self._default)

    def _check_output(self, candidate: LoadableConfig, launch: LoadedLaunch) -> Failure | None:
        """Check a config's output; the first config that runs becomes the reference."""
        config = candidate.config

        def run() -> None:
            launch.prepare()
            launch.run()
            launch.complete()

        if self.reference is not None:
            return self.checker.check(run, launch.finish, candidate.slots)
        if config.alternative is not None:
            return Failure("check", "unchecked", "no config has run whose output it must equal")
        failure = self.checker.set_reference(run, launch.finish, candidate.slots)
        if failure is None:
            self.reference = config
            if config != self._default and not self.checker.has_reference:
                note = f"the default gives no reference: outputs are compared with {config}'s"
                self._notes = (note,)
        return failure
