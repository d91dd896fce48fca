"""Tuning without ranking, for a device that nothing is known of: Triton compiles and launches.

Everything is compiled in parallel and timed, as `triton.autotune` would: no descriptor, no reader
of machine code and no launcher of asmtune's own is needed. Outputs are not checked.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from asmtune.base.errors import CompileError, MeasureError, ParseError
from asmtune.base.settings import Settings
from asmtune.base.text import user_stacklevel
from asmtune.compile.load import LoadedLaunch, launch_values
from asmtune.compile.lower import PRE_HOOK_LOCK
from asmtune.core.config import Config
from asmtune.core.failures import guarded, required
from asmtune.core.problem import Problem
from asmtune.core.progress import ProgressListener
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement, TuneRecord
from asmtune.ir.ttir.analysis import Kernel
from asmtune.measure.bench.base import QUANTILES
from asmtune.measure.bench.trials import timed_by_user
from asmtune.measure.checks.tensors import preserved
from asmtune.triton_api.jit_functions import jit_function
from asmtune.triton_api.launching import allocating, device_setter, driver_clock, ttir_of
from asmtune.triton_api.user_state import carried, outside, within
from asmtune.tuning.options import TuneOptions
from asmtune.tuning.request import TuningRequest, TuningResult

if TYPE_CHECKING:
    from asmtune.predict.prune.flow import Funnel


class UnrankedWarning(UserWarning):
    """Configs are compiled and timed without being ranked first."""


@dataclass(frozen=True)
class UnrankedFunnel:
    """The part of a `Funnel` that a tuner has where nothing can be ranked."""

    settings: Settings
    progress: ProgressListener = field(default_factory=ProgressListener)

    @classmethod
    def of(cls, settings: Settings) -> Funnel:
        """Make one, in the place of a funnel."""
        return cast("Funnel", cls(settings))


@dataclass(frozen=True)
class UnrankedSession:
    """Tunes one request by Triton's own means.

    Attributes:
        options: the user's hooks, clock, arguments to zero or restore, and what may be repeated;
            the others have no effect here.
        jobs: compiles at once.
        reason: why nothing is ranked, for the notice.
        listener: gets the progress of compiles and timings.
    """

    options: TuneOptions
    jobs: int
    reason: str
    listener: ProgressListener = field(default_factory=ProgressListener)

    def run(self, request: TuningRequest) -> TuningResult:
        """Compile all configs, time those that compile, and choose the fastest.

        The problem's tensors hold what they held before.

        Raises:
            InputError: the configs do not fit the kernel.
            CompileError: no config compiles.
            ForeignWriteError: launches may change memory that nothing puts back.
            MeasureError: no config that compiles can be launched.
        """
        default = request.space.first(**request.problem.shape)
        configs = list(dict.fromkeys([default, *request.configs()]))
        if self.options.checks.bits_equal or self.options.checks.accuracy is not None:
            configs = [default]  # nothing checks the outputs of others here
        _notify(request.key.device, self.reason, len(configs))
        arguments = request.problem.arguments.values()
        with _device_of(arguments), _preserved(request), allocating():
            failures = self._compiled(request.problem, configs)
            timed = self._timed(request.problem, [c for c in configs if c not in failures])
        measured = [outcome for outcome in timed.values() if isinstance(outcome, Measurement)]
        failures |= {c: outcome for c, outcome in timed.items() if isinstance(outcome, Failure)}
        if not measured:
            kind = MeasureError if timed else CompileError
            raise kind(
                f"no config of {request.problem.name} can run on {request.key.device}: of "
                f"{len(failures)} the first fails with {next(iter(failures.values()))}"
            )
        best = min(measured, key=lambda one: one.median_us)
        record = TuneRecord(
            request.key, best.config, tuple(measured), request.expected, tuple(failures.items())
        )
        usual = timed.get(default)
        # A function that writes nothing would be the fastest.
        left_out = "; so no alternative was timed" if self.options.alternatives else ""
        return TuningResult(
            request,
            "tuned",
            record,
            default_us=usual.median_us if isinstance(usual, Measurement) else None,
            compiled=len(configs),
            timed=len(timed),
            remark=f"chosen without ranking and without a check of outputs{left_out}",
        )

    def _compiled(self, problem: Problem, configs: Sequence[Config]) -> dict[Config, Failure]:
        """Compile configs in parallel; return why those that fail do.

        Raises:
            ForeignWriteError: launches may change memory that nothing puts back.
        """
        self.listener.start("compile", len(configs))
        with ThreadPoolExecutor(self.jobs, "asmtune-unranked", device_of_thread()) as threads:
            outcomes = list(threads.map(partial(self._compile, problem), configs))
        places = [place for each in outcomes if not isinstance(each, Failure) for place in each]
        self.options.checks.require_repeatable([*dict.fromkeys(places)], isolated=False)
        pairs = zip(configs, outcomes, strict=True)
        return {config: outcome for config, outcome in pairs if isinstance(outcome, Failure)}

    def _compile(self, problem: Problem, config: Config) -> tuple[str, ...] | Failure:
        """Compile a config; return where it may write memory of no argument."""

        def compiled() -> tuple[str, ...] | Failure:
            grid = problem.grid_of(config)
            if isinstance(grid, Failure):
                return grid
            return _foreign_places(_launch(problem, config, problem.bind(config), warmup=True))

        def work() -> tuple[str, ...] | Failure:
            if config.pre_hook is None:
                return compiled()
            with PRE_HOOK_LOCK:  # descriptors get their block shape there, for all configs
                within(config.pre_hook)(_hook_values(problem, config, warmup=True))
                return compiled()

        outcome = guarded("compile", work)
        self.listener.advance()
        return outcome

    def _timed(
        self, problem: Problem, configs: Sequence[Config]
    ) -> dict[Config, Measurement | Failure]:
        chosen = self.options.do_bench
        do_bench = driver_clock() if chosen is None else within(chosen)
        self.listener.start("time", len(configs))
        outcomes: dict[Config, Measurement | Failure] = {}
        with ExitStack() as stack:
            stack.callback(self._restore, problem)
            for config in configs:
                call = self._call(problem, config)
                returned = guarded("launch", partial(do_bench, call, quantiles=QUANTILES))
                failed = isinstance(returned, Failure)
                outcomes[config] = returned if failed else timed_by_user(config, returned)
                self.listener.advance()
        return outcomes

    def _restore(self, problem: Problem) -> None:
        restore = self.options.checks.restore
        if restore is not None:
            required("restore_value=", lambda: within(restore)(problem.arguments))

    def _call(self, problem: Problem, config: Config) -> Callable[[], None]:
        """Return a function that launches once, with all that Triton does around a launch."""
        values, bound = _hook_values(problem, config, warmup=False), problem.bind(config)
        checks = self.options.checks
        copies = {name: values[name].clone() for name in checks.restore_value if name in values}

        def prepare() -> None:
            if config.pre_hook is not None:
                within(config.pre_hook)(values)

        def run() -> None:
            _launch(problem, config, bound, warmup=False)

        launch = self.options.hooks.around(LoadedLaunch(prepare, run), values)

        @outside()
        def call() -> None:
            launch.prepare()
            for name in checks.reset_to_zero:
                values[name].data.zero_()  # also of a tensor that inference has made
            for name, copy in copies.items():
                values[name].data.copy_(copy)
            self._restore(problem)
            launch.run()
            launch.finish()

        return call


def _hook_values(problem: Problem, config: Config, *, warmup: bool) -> dict[str, Any]:
    """Return what Triton calls hooks with: the launch's values, its grid, and what it is for."""
    return {**launch_values(problem, config), "grid": problem.grid, "warmup": warmup}


def _device_of(arguments: Iterable[Any]) -> AbstractContextManager[Any]:
    """Make the CUDA device of the first tensor current: another thread has another one."""
    import torch

    tensors = (value for value in arguments if isinstance(value, torch.Tensor) and value.is_cuda)
    first = next(tensors, None)
    return nullcontext() if first is None else torch.cuda.device(first.device)


def _preserved(request: TuningRequest) -> AbstractContextManager[Any]:
    """Restore the arguments at the end; where there is no memory for copies, warn and go on."""
    import torch

    stack = ExitStack()
    try:
        stack.enter_context(preserved(request.problem.arguments.values()))
    except torch.OutOfMemoryError as error:
        warnings.warn(
            f"kernel {request.key.kernel}: arguments that it updates in place are not restored "
            f"after tuning, since there is no memory for copies: {str(error).splitlines()[0]}",
            UnrankedWarning,
            stacklevel=user_stacklevel(),
        )
    return stack


def _launch(problem: Problem, config: Config, bound: Mapping[str, Any], *, warmup: bool) -> Any:
    grid = problem.programs(config)
    return jit_function(problem.kernel).run(grid=grid, warmup=warmup, **bound)


def _foreign_places(compiled: Any) -> tuple[str, ...]:
    """Return where a kernel that Triton compiled may write memory of no argument."""
    text = ttir_of(compiled)
    try:
        return Kernel(text).foreign_places if text else ()
    except ParseError:
        return ()


def device_of_thread() -> Callable[[], None]:
    """Return a function that gives another thread this one's device, and its user's state."""
    set_device, begin = device_setter(), carried()

    def start() -> None:
        set_device()
        begin()

    return start


_notified: set[tuple[str, str]] = set()


def _notify(device: str, reason: str, configs: int) -> None:
    """Warn that nothing is ranked, once a process for a device and a reason."""
    kind = device, reason.partition(":")[0]  # the config that failed first follows it
    if kind in _notified:
        return
    _notified.add(kind)
    warnings.warn(
        f"{device}: {reason}; configs are not ranked: all {configs} are compiled and timed by "
        "Triton's own means (fewer configs, or a descriptor of the device in the folder that "
        "ASMTUNE_TARGETS names, make tuning quicker)",
        UnrankedWarning,
        stacklevel=user_stacklevel(),
    )
