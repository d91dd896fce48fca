"""Times configs in this process, on PyTorch's current device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from asmtune.compile.load import Binary, LoadedLaunch, call_alternative, launch_values
from asmtune.compile.lower import PRE_HOOK_LOCK
from asmtune.core.failures import guarded, of_one_config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Outcome
from asmtune.measure.bench.base import BenchSetup, TimingCandidate
from asmtune.measure.bench.trials import BenchGpu, DeviceLostError, LoadableConfig, Trials
from asmtune.triton_api.launching import allocating
from asmtune.triton_api.user_state import within

T = TypeVar("T")


class LocalBench:
    """Times configs on the problem's own tensors, and restores their contents at the end.

    This is the fastest bench and the least safe: a config that hangs hangs this process, and an
    illegal access breaks its CUDA context.

    Args:
        setup: what is timed, and how.
        machine: the GPU; PyTorch's current device by default.

    Raises:
        MeasureError: there is no GPU.
    """

    def __init__(self, setup: BenchSetup, machine: BenchGpu | None = None) -> None:
        self._machine = BenchGpu() if machine is None else machine
        self._lowering = setup.lowering
        self._trials = Trials(setup, setup.lowering.problem.arguments, self._machine)
        self._hooks, self._alternatives = setup.hooks, setup.alternatives
        self._lost: DeviceLostError | None = None

    @property
    def device(self) -> str:
        """Return the name of the GPU."""
        return self._machine.name

    @property
    def notes(self) -> tuple[str, ...]:
        """Return remarks on how outputs were checked."""
        return self._trials.notes

    def begin(self, default: TimingCandidate) -> Outcome:
        """Make the default config's output the reference, and time the config."""
        (outcome,) = self._guarded(lambda: [self._trials.begin(self._candidate(default))])
        return outcome

    def trial(self, candidates: Sequence[TimingCandidate]) -> list[Outcome]:
        """Check and race candidates, and return outcomes in order."""
        return self._guarded(lambda: self._trials.trial([self._candidate(e) for e in candidates]))

    def final(self, candidates: Sequence[TimingCandidate]) -> list[Outcome]:
        """Time candidates again, interleaved, and return outcomes in order."""
        self._call_alternatives(candidates)
        return self._guarded(lambda: self._trials.final([self._candidate(e) for e in candidates]))

    def _call_alternatives(self, candidates: Sequence[TimingCandidate]) -> None:
        """Call each alternative once before the race, without the lock that the race holds.

        A function may tune kernels of its own at its first call, whose configs' hooks other threads
        run under that lock. One that fails fails in the race as well, which says why.
        """
        if self._lost is not None:
            return
        for candidate in candidates:
            launch = self._candidate(candidate).load() if candidate.config.alternative else None
            if isinstance(launch, LoadedLaunch):
                guarded("launch", partial(self._call_once, launch))

    def _call_once(self, launch: LoadedLaunch) -> None:
        self._trials.checker.prepare()
        launch.prepare()
        with allocating():
            launch.run()
            launch.complete()
        launch.finish()

    def close(self) -> None:
        """Restore the contents of every argument, unless the CUDA context is broken."""
        if self._lost is None:
            self._trials.checker.close()

    def _guarded(self, work: Callable[[], T]) -> T:
        """Do work that launches configs.

        Raises:
            DeviceLostError: one broke the CUDA context, now or before; names it.
        """
        if self._lost is not None:
            raise self._lost
        try:
            # Another thread compiles, and runs its configs' hooks on the same tensors.
            with PRE_HOOK_LOCK, allocating():
                return work()
        except DeviceLostError as error:
            self._lost = error
            raise

    def _candidate(self, candidate: TimingCandidate) -> LoadableConfig:
        config = candidate.config

        def load() -> LoadedLaunch | Failure:
            if config.alternative is not None:
                problem = self._lowering.problem
                launch = call_alternative(self._alternatives[config.alternative], problem)
                return self._hooks.around(launch, launch_values(problem, config))
            binary = Binary.of(self._lowering, config, candidate.artifact)
            if isinstance(binary, Failure):
                return binary
            values = of_one_config(
                "launch", "values", partial(launch_values, self._lowering.problem, config)
            )
            if isinstance(values, Failure):
                return values
            hook = None if config.pre_hook is None else within(config.pre_hook)
            launch = self._machine.launch(binary, values, hook)
            return self._hooks.around(launch, values)

        return LoadableConfig(config, load, candidate.slots)
