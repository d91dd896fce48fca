"""Shapes one after another on this machine's GPU; the tensors of one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from asmtune.base.errors import AsmtuneError, InputError, ProblemError
from asmtune.core.failures import guarded, required
from asmtune.core.hardware.model import Target
from asmtune.core.kernel_module import KernelModule, Shape
from asmtune.core.keys.rules import BucketRules
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Failure
from asmtune.core.space.space import Space
from asmtune.runtime.autotuner import AsmAutotuner
from asmtune.runtime.offline.kernel_sources import StoredLaunch, reference_of, tuner_of
from asmtune.runtime.recording.key_file import RecordedKey, read_key_file
from asmtune.runtime.recording.launches import load_kernel, recorded_request
from asmtune.store.codec import key_digest
from asmtune.tuning.listener import TuningListener
from asmtune.tuning.options import Choices, TuneOptions
from asmtune.tuning.request import TuningRequest, TuningResult
from asmtune.tuning.tuner import Tuner


@dataclass(frozen=True)
class TuningGpu:
    """The GPU that tunes: its name by the driver, and the tensors' place in PyTorch."""

    device: str
    place: str
    tuner: Tuner


def open_machine(
    options: TuneOptions, progress: TuningListener, target: Target | None = None
) -> TuningGpu:
    """Open this machine's current GPU; ranks by `target` if given.

    Raises:
        NoGpuError: there is no GPU.
    """
    device, tuner = Tuner.on_this_gpu(options, target)
    return TuningGpu(device, "cuda", tuner.with_listener(progress))


@dataclass(frozen=True)
class RecordedKeys:
    """Recorded keys of a program, to be tuned one after another without it.

    Attributes:
        keys: keys with their kernels, or with the reason why the kernel is missing.
        changed: names of kernels whose source is not the recorded one any more, as `results`
            meets them.
    """

    keys: tuple[tuple[RecordedKey, AsmAutotuner | str], ...]
    changed: dict[str, None] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path, kernel: str | None = None) -> RecordedKeys:
        """Read a file of keys and import their kernels.

        Args:
            path: the file.
            kernel: takes the keys of a kernel of that name alone.

        Raises:
            InputError: the file cannot be read, has no key of the kernel, or none of its kernels
                can be imported.
        """
        file = read_key_file(path)
        own = [key for key in file.keys if f".{key.kernel}".endswith(f".{kernel or key.kernel}")]
        if not own:
            has = ", ".join(sorted({key.kernel for key in file.keys})) or "no key at all"
            wanted = "" if kernel is None else f"no key of kernel {kernel}: "
            again = "name one of these, or record more with `asmtune run --record`"
            raise InputError(f"keys {path}: {wanted}the file has {has}; {again}")
        tuners: dict[tuple[str, str], AsmAutotuner | str] = {}
        rules = BucketRules.of(file.buckets)
        for key in own:
            place = (key.kernel, key.module)
            if place not in tuners:
                tuners[place] = _kernel_of(key, rules)
        failures = [one for one in tuners.values() if isinstance(one, str)]
        if len(failures) == len(tuners):
            raise InputError(f"keys {path}: {failures[0]}")
        return cls(tuple((key, tuners[key.kernel, key.module]) for key in own))

    def results(self, machine: TuningGpu) -> Iterator[TuningResult]:
        """Tune each key and yield its result; one that fails stops no other.

        Only one key's arguments are in memory at a time; its result has none.
        """
        done: set[str] = set()
        for key, tuner in self.keys:
            result = self._result(key, tuner, machine)
            digest = key_digest(result.request.key)
            if digest not in done:  # two keys of a program without rules may be one with them
                yield result
            done.add(digest)

    def _result(
        self, key: RecordedKey, tuner: AsmAutotuner | str, machine: TuningGpu
    ) -> TuningResult:
        if isinstance(tuner, str):
            return _failed(key, machine.device, tuner)
        request = _request_of(key, tuner, machine)
        if isinstance(request, str):
            return _failed(key, machine.device, request)
        if request.expected.source != key.source:
            self.changed[key.kernel] = None
        choices: Any = {**tuner.options.choices, **_shared(machine.tuner.options)}
        own = replace(machine.tuner, options=TuneOptions.of(choices))
        (result,) = own.results([request])
        problem = replace(request.problem, arguments={}, shape=request.key.shape)
        return replace(result, request=request.with_arguments_of(problem))


def _kernel_of(key: RecordedKey, rules: BucketRules) -> AsmAutotuner | str:
    try:
        return load_kernel(key, rules)
    except ProblemError as error:
        return str(error)


def _request_of(key: RecordedKey, tuner: AsmAutotuner, machine: TuningGpu) -> TuningRequest | str:
    """Make a key's request, or say why it cannot be made."""
    try:
        request = guarded(
            "input", partial(recorded_request, key, tuner, machine.device, machine.place)
        )
    except AsmtuneError as error:
        return str(error)
    return request.detail if isinstance(request, Failure) else request


def _shared(options: TuneOptions) -> Choices:
    """Return the choices that are the same for all kernels."""
    return {
        "effort": options.effort,
        "isolate": options.isolate,
        "seed": options.seed,
        "force": options.force,
    }


def _failed(key: RecordedKey, device: str, detail: str) -> TuningResult:
    first = (detail.splitlines() or ["no message"])[0]
    problem = Problem(None, {}, (1,), dict(key.shape), key.kernel)
    request = TuningRequest(problem, replace(key.key, device=device), Space({}))
    return TuningResult(request, "failed", error=first)


@dataclass(frozen=True)
class TuningQueue:
    """Shapes of one kernel and dtype; `reference` is the module's name or path, for the traces."""

    module: KernelModule
    dtype: str
    space: Space
    reference: str

    @classmethod
    def of(cls, module: KernelModule, reference: str, dtype: str | None) -> TuningQueue:
        """Make the queue of a module, by default of its first dtype.

        Raises:
            InputError: the module has no such dtype, or its space cannot be made.
        """
        name = module.check_dtype(dtype)
        space = required(f"space of kernel {module.name}", module.space)
        return cls(module, name, space, reference_of(reference))

    def check(self, shapes: Sequence[Shape]) -> list[Problem]:
        """Make a problem for each shape, on tensors without memory.

        Raises:
            ProblemError: the module cannot make one; names the shape.
        """
        make = self._problem
        return [required(self._what(shape), partial(make, shape, "meta")) for shape in shapes]

    def results(self, problems: Sequence[Problem], machine: TuningGpu) -> Iterator[TuningResult]:
        """Tune each problem and yield its result; one that fails stops no other.

        A result's problem has no tensors, so that those of all shapes are never in memory at once.
        """
        for problem in problems:
            key, _ = self.launched(problem).identity(machine.device)
            request = machine.tuner.request(problem, key, self.space, self.reference)
            yield replace(self._result(request, machine), request=request)

    @property
    def tuner(self) -> AsmAutotuner | None:
        """Find the autotuner of a module's kernel, if the module decorates it."""
        return tuner_of(self.module)

    def launched(self, problem: Problem) -> StoredLaunch:
        """Make the launch as the stores know it."""
        return StoredLaunch(problem, self.space, self.tuner)

    def _result(self, request: TuningRequest, machine: TuningGpu) -> TuningResult:
        shape = request.problem.shape
        problem = guarded("input", partial(self._problem, shape, machine.place))
        if isinstance(problem, Failure):
            first = problem.detail.splitlines()[0]
            return TuningResult(request, "failed", error=f"{self._what(shape)}: {first}")
        (result,) = machine.tuner.results([request.with_arguments_of(problem)])
        if result.outcome == "known":
            result = replace(result, default_us=self._default_us(result))
        return result

    def _default_us(self, result: TuningResult) -> float | None:
        timings = result.record.config_timings if result.record is not None else ()
        default = self.space.first(**result.request.problem.shape)
        return next((m.median_us for m in timings if m.config == default), None)

    def _problem(self, shape: Shape, place: str) -> Problem:
        return self.module.problem(shape, self.dtype, place)

    def _what(self, shape: Shape) -> str:
        words = " ".join(f"{name}={value}" for name, value in shape.items())
        return f"kernel {self.module.name} on {words}"
