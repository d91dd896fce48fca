"""The bench of a search: equal binaries are timed once, here or in a child process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from asmtune.base.fingerprint import canonical, digest
from asmtune.compile.load import launch_values
from asmtune.core.config import Config
from asmtune.core.failures import of_one_config
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Artifact, Failure
from asmtune.core.records.tuned import Measurement, Outcome
from asmtune.measure.bench.base import Bench, BenchSetup, TimingCandidate
from asmtune.measure.bench.child_bench import ChildBench
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


def open_bench(setup: BenchSetup, *, isolate: bool = False) -> Bench:
    """Open a bench for a problem; configs of the same binary are timed once.

    Args:
        setup: what is timed, and how.
        isolate: time in a child process, so that a config that faults or hangs does not affect
            the others.

    Raises:
        InputError: something cannot be sent to a process.
        MeasureError: there is no GPU, or it cannot be used.
    """
    bench = ChildBench(setup) if isolate else LocalBench(setup)
    return DedupBench(setup.lowering.problem, bench)
