"""Benches over benches: one times equal binaries once, one spreads trials over several GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from asmtune.base.errors import InputError
from asmtune.base.fingerprint import canonical, digest
from asmtune.compile.load import launch_values
from asmtune.core.config import Config
from asmtune.core.failures import of_one_config
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Artifact, Failure
from asmtune.core.records.tuned import Measurement, Outcome
from asmtune.measure.bench.base import Bench, BenchSetup, TimingCandidate
from asmtune.measure.bench.child_bench import COMMAND, ChildBench, pack
from asmtune.measure.bench.local import LocalBench
from asmtune.triton_api.jit_functions import parameters

# Metadata that the launch depends on; the rest is in the machine code.
_LAUNCH: Final = (
    "num_warps",
    "num_ctas",
    "cluster_dims",
    "shared",
    "tmem_size",
    "tensordesc_meta",
    "launch_cooperative_grid",
    "launch_pdl",
    "global_scratch_size",
    "global_scratch_align",
)

Key = tuple[str, object]
T = TypeVar("T")


class DedupBench:
    """Passes each distinct binary to another bench once.

    The result holds for every config of the same binary, also in later trials. Finals are timed
    again.
    """

    def __init__(self, problem: Problem, bench: Bench) -> None:
        self._problem = problem
        self._bench = bench
        self._known: dict[Key, Measurement | Failure] = {}
        self._keys: dict[Config, Key | Failure] = {}
        self._default: Config | None = None

    @property
    def device(self) -> str:
        """Return the name of the GPU."""
        return self._bench.device

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the notes of the bench that times."""
        return self._bench.notes

    def begin(self, default: TimingCandidate) -> Outcome:
        """Time the default config."""
        self._default = default.config
        _, result = self._bench.begin(default)
        key = self._key(default)
        if not isinstance(key, Failure):
            self._known[key] = result
        return default.config, result

    def trial(self, candidates: Sequence[TimingCandidate]) -> list[Outcome]:
        """Time binaries that were not timed before; the others keep their timings."""
        fresh = [candidate for candidate in candidates if self._key(candidate) not in self._known]
        self._known |= self._time_distinct(self._bench.trial, fresh)
        return self._outcomes(candidates, self._known)

    def final(self, candidates: Sequence[TimingCandidate]) -> list[Outcome]:
        """Time each binary again, once."""
        return self._outcomes(candidates, self._time_distinct(self._bench.final, candidates))

    def close(self) -> None:
        """Close the bench that times."""
        self._bench.close()

    def _time_distinct(
        self,
        verb: Callable[[Sequence[TimingCandidate]], list[Outcome]],
        candidates: Sequence[TimingCandidate],
    ) -> dict[Key, Measurement | Failure]:
        """Time one candidate for each binary: the default config if it is among them."""
        chosen: dict[Key, TimingCandidate] = {}
        for candidate in candidates:
            key = self._key(candidate)
            if isinstance(key, Failure):
                continue
            if key not in chosen or candidate.config == self._default:
                chosen[key] = candidate
        outcomes = verb(list(chosen.values())) if chosen else []
        return {key: result for key, (_, result) in zip(chosen, outcomes, strict=True)}

    def _outcomes(
        self, candidates: Sequence[TimingCandidate], results: dict[Key, Measurement | Failure]
    ) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for candidate in candidates:
            key, config = self._key(candidate), candidate.config
            result = key if isinstance(key, Failure) else results[key]
            own = replace(result, config=config) if isinstance(result, Measurement) else result
            outcomes.append((config, own))
        return outcomes

    def _key(self, candidate: TimingCandidate) -> Key | Failure:
        """Return what a binary is launched with, made once; a rule of the user's may raise."""
        config = candidate.config
        if config not in self._keys:
            made = partial(self._made_key, candidate)
            self._keys[config] = of_one_config("launch", "values", made)
        return self._keys[config]

    def _made_key(self, candidate: TimingCandidate) -> Key:
        config = candidate.config
        if config.alternative is not None:
            return f"@{config.alternative}", None
        values = launch_values(self._problem, config)
        # The code does not contain runtime arguments; an axis or a heuristic may set one.
        runtime = {
            p.name: repr(values[p.name])
            for p in parameters(self._problem.kernel)
            if not p.is_constexpr and values[p.name] is not self._problem.arguments.get(p.name)
        }
        launch = binary_digest(candidate.artifact, self._problem.programs(config))
        return digest(launch, canonical(runtime)), config.pre_hook


def binary_digest(artifact: Artifact, programs: tuple[int, int, int]) -> str:
    """Return a digest that is equal for configs that launch the same machine code alike."""
    launch = [artifact.metadata.get(name) for name in _LAUNCH]
    return digest(artifact.cubin, canonical([launch, programs]))


class Team:
    """Spreads trials over GPUs of one model; finals are timed on the first alone.

    An error of one GPU is the team's. What was timed is stored by then, so that a new run on the
    other GPUs goes on from there.

    Attributes:
        device: name of the GPUs.

    Args:
        gpus: indices of the GPUs among those that this process sees.

    Raises:
        InputError: the GPUs are not of one model, or an argument cannot be sent.
        MeasureError: a process cannot start.
    """

    def __init__(
        self, setup: BenchSetup, gpus: Sequence[int], *, command: Sequence[str] = COMMAND
    ) -> None:
        self._members: list[ChildBench] = []
        self._threads = ThreadPoolExecutor(len(gpus), "asmtune-bench")
        self._shared = pack(setup)

        def opened(gpu: int) -> None:
            self._members.append(ChildBench(setup, gpu, shared=self._shared, command=command))

        with ExitStack() as undo:
            undo.callback(self.close)
            _results([self._threads.submit(opened, gpu) for gpu in gpus])
            self._members.sort(key=lambda member: gpus.index(member.gpu))
            self.device = _one_model(gpus, [member.device for member in self._members])
            undo.pop_all()

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the notes of all members without repeats."""
        return (*dict.fromkeys(note for member in self._members for note in member.notes),)

    def begin(self, default: TimingCandidate) -> Outcome:
        """Time the default config on every GPU; return the outcome on the first."""
        return _results([self._threads.submit(m.begin, default) for m in self._members])[0]

    def trial(self, candidates: Sequence[TimingCandidate]) -> list[Outcome]:
        """Check and race candidates, dealt to the GPUs in turn; return outcomes in order."""
        count = len(self._members)
        shares = [candidates[turn::count] for turn in range(min(count, len(candidates)))]
        timed = _results(
            [
                self._threads.submit(member.trial, share)
                for member, share in zip(self._members, shares, strict=False)
            ]
        )
        return [timed[place % count][place // count] for place in range(len(candidates))]

    def final(self, candidates: Sequence[TimingCandidate]) -> list[Outcome]:
        """Time candidates again on the first GPU, interleaved; return outcomes in order."""
        return self._threads.submit(self._members[0].final, candidates).result()

    def close(self) -> None:
        """End all processes."""
        for member in self._members:
            member.close()
        self._threads.shutdown()
        self._shared.close()


def _results(futures: Sequence[Future[T]]) -> list[T]:
    """Wait for all, also where one raises."""
    wait(futures)
    return [future.result() for future in futures]


def _one_model(gpus: Sequence[int], names: Sequence[str]) -> str:
    if len(set(names)) > 1:
        listed = ", ".join(f"GPU {gpu}: {name}" for gpu, name in zip(gpus, names, strict=True))
        raise InputError(
            f"timings of different GPUs cannot be compared ({listed}): choose devices of one model"
        )
    return names[0]


def open_bench(
    setup: BenchSetup, *, isolate: bool = False, devices: Sequence[int] | None = None
) -> Bench:
    """Open a bench for a problem; configs of the same binary are timed once.

    Args:
        setup: what is timed, and how.
        isolate: time in a child process, so that a config that faults or hangs does not affect
            the others.
        devices: GPUs to time on, by their index among those that this process sees; each has a
            child process. By default the current one.

    Raises:
        InputError: the devices are not of one model, or something cannot be sent to a process.
        MeasureError: there is no GPU, or it cannot be used.
    """
    if devices is not None:
        _check_devices(devices)
    bench: Bench
    if devices is not None and len(devices) > 1:
        bench = Team(setup, devices)
    elif isolate or devices:
        bench = ChildBench(setup, devices[0] if devices else None)
    else:
        bench = LocalBench(setup)
    return DedupBench(setup.lowering.problem, bench)


def _check_devices(devices: Sequence[int]) -> None:
    sound = all(type(index) is int and index >= 0 for index in devices)
    if not devices or not sound or len({*devices}) != len(devices):
        raise InputError(f"devices={list(devices)}: expected different indices of GPUs, from 0")
