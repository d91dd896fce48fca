"""Compiles many configs in parallel: workers take shares of them.

A family is configs whose machine code is likely the same. One worker takes all of it, so that LLVM
runs once. Sketches take a tenth of the time of a compile, so a worker takes many
configs of one tile at once.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Hashable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Generic, TypeVar

from asmtune.base.child import ChildGoneError
from asmtune.base.errors import StoreError
from asmtune.base.settings import Settings
from asmtune.compile.artifacts import ArtifactCache
from asmtune.compile.lower import Lowering, LowerRequest
from asmtune.compile.sandbox import JobCancelledError, begin_idle, borrow_sandbox
from asmtune.compile.worker import (
    CompiledConfig,
    Job,
    Made,
    Maker,
    Outcome,
    Workers,
    made_in,
    make_artifact,
    make_sketch,
    start_compiler,
)
from asmtune.core.config import Config
from asmtune.core.records.artifacts import Artifact, Failure

Pair = tuple[int, LowerRequest | Failure]
"""A config's position, with its request."""

Share = list[tuple[int, LowerRequest]]
"""Requests of one worker, in an order in which each reuses what earlier ones made."""

Lower = Callable[[Config], LowerRequest | Failure]
R = TypeVar("R")

Compiled = tuple[int, str, Made[R]]
"""A config's position and digest, with what a child made of it."""

Outcomes = Generator[tuple[int, Outcome[R]], None, None]

_MOST: Final = 64
"""Sketches a worker takes at once; with so many, handing them over costs next to nothing."""

_ROUNDS: Final = 4
"""Shares per worker that the remaining configs are cut into: shares shrink, so that the workers
end together."""


def families(configs: Sequence[Config], lower: Lower) -> Iterator[list[Pair]]:
    """Group configs whose machine code is likely the same.

    A request is made when its family's turn comes.
    """

    def key(config: Config) -> Config:
        return Config(
            config.kwargs, config.num_warps, num_ctas=config.num_ctas, maxnreg=config.maxnreg
        )

    for positions in _groups(configs, key):
        by_stages: dict[int, list[Pair]] = {}
        for position in positions:
            request = lower(configs[position])
            # Without a matrix product in a loop, `num_stages` changes nothing.
            pipelined = isinstance(request, LowerRequest) and request.has_dot
            stages = configs[position].num_stages if pipelined else 0
            by_stages.setdefault(stages, []).append((position, request))
        yield from by_stages.values()


def tiles(
    configs: Sequence[Config], lower: Lower, most: Callable[[int], int]
) -> Iterator[list[Pair]]:
    """Split configs into shares of one tile; a request is made when its share's turn comes.

    `most` gives the size of a share by how many configs are left.
    """
    left = len(configs)
    for positions in _groups(configs, lambda config: tuple(sorted(config.kwargs.items()))):
        while positions:
            size = max(1, most(left))
            share, positions = positions[:size], positions[size:]
            yield [(position, lower(configs[position])) for position in share]
            left -= len(share)


def _groups(configs: Sequence[Config], key: Callable[[Config], Hashable]) -> list[list[int]]:
    """Group positions of configs by key, in the order of the first of each."""
    groups: dict[Hashable, list[int]] = {}
    for position, config in enumerate(configs):
        groups.setdefault(key(config), []).append(position)
    return list(groups.values())


@dataclass(frozen=True)
class Hooks(Generic[R]):
    """Holds the caller's functions for before and after a compile.

    Attributes:
        read: what to take from an artifact, or from a sketch; called in the worker,
            so it must pickle: a function of a module, or a `functools.partial` of one.
        admit: called in this process with a config and its request; if it returns a failure, the
            config is not compiled.
        known: outcomes by request digest; looked up before a worker is used, and filled. One
            compile serves every problem of equal specialisation. Readings of sketches and of
            artifacts need two mappings.
    """

    read: Callable[[Any], R]
    admit: Callable[[Config, LowerRequest], Failure | None]
    known: MutableMapping[str, CompiledConfig[R] | Failure] = field(default_factory=dict)


def compile_configs(
    lowering: Lowering,
    configs: Sequence[Config],
    hooks: Hooks[R],
    settings: Settings,
    workers: Workers | None = None,
) -> Outcomes[R]:
    """Compile configs in parallel; yield each as it is done.

    Closing the iterator ends the compiles that run.

    Args:
        lowering: the front end.
        configs: to compile.
        hooks: called before and after a compile.
        settings: limits and folders.
        workers: threads that compile; by default as many as the settings say.

    Returns:
        The config's position in `configs`, with what was read or the failure.

    Raises:
        ProblemError: arguments and config do not fit the kernel.
        StoreError: no folder for artifacts can be written.
    """
    flow = _Flow(lowering, hooks, settings, workers or Workers(settings.jobs), make_artifact)
    return flow.outcomes(configs)


def sketch_configs(
    lowering: Lowering,
    configs: Sequence[Config],
    hooks: Hooks[R],
    settings: Settings,
    workers: Workers | None = None,
) -> Outcomes[R]:
    """Compile configs as far as LLVM, in parallel; yield each as it is done.

    Takes a tenth of the time of a compile, and less where the sketch is on disk, or an artifact
    in its place. `hooks.read` gets a `Sketch`.

    Arguments, results and errors are those of `compile_configs`.
    """
    flow = _Flow(lowering, hooks, settings, workers or Workers(settings.jobs), make_sketch)
    return flow.outcomes(configs)


@dataclass(frozen=True)
class _Flow(Generic[R]):
    """Turns the configs of one call into jobs, and the workers' results into outcomes."""

    lowering: Lowering
    hooks: Hooks[R]
    settings: Settings
    workers: Workers
    make: Maker
    known: list[tuple[int, Outcome[R]]] = field(default_factory=list)

    def outcomes(self, configs: Sequence[Config]) -> Outcomes[R]:
        cache = ArtifactCache.of(self.settings)
        job = Job(self.make, self.hooks.read, cache.prepare())
        work = partial(self._compile, job)
        done: Generator[list[Compiled[R]], None, None]
        done, known = self.workers.unordered(work, self._fresh(configs)), self.hooks.known
        compiled = False
        try:
            for share in done:
                compiled = True
                for position, digest, made in share:
                    if made.unwritten is not None:
                        cache.put(digest, made.unwritten)
                    known[digest] = made.outcome
                    yield position, made.outcome
                yield from self._drain_known()
            yield from self._drain_known()
        finally:
            done.close()
            if compiled:
                cache.trim_at_times()

    def _compile(
        self, job: Job[R], share: Share, stop: threading.Event | None
    ) -> list[Compiled[R]]:
        """Have a child compile a share, up to where nobody waits any more."""
        settings, done = self.settings, list[Compiled[R]]()
        with borrow_sandbox(settings.compile_memory_bytes, self.workers.jobs, stop) as sandbox:
            try:
                for position, request in share:
                    made = made_in(sandbox, request, job, settings, stop)
                    done.append((position, request.digest, made))
            except JobCancelledError:
                sandbox.begin()  # for the next share: a child takes a second to start
        return done

    def _drain_known(self) -> Iterator[tuple[int, Outcome[R]]]:
        while self.known:
            yield self.known.pop()

    def _fresh(self, configs: Sequence[Config]) -> Iterator[Share]:
        """Yield shares without what is known, each lowered only when a worker is free."""
        for share in self._shares(configs):
            fresh: Share = []
            for position, request in share:
                if isinstance(request, Failure):
                    self.known.append((position, request))
                elif request.digest in self.hooks.known:
                    self.known.append((position, self.hooks.known[request.digest]))
                else:
                    fresh.append((position, request))
            if fresh:
                yield fresh

    def _shares(self, configs: Sequence[Config]) -> Iterator[list[Pair]]:
        if self.make is make_artifact:
            return families(configs, self._request)
        jobs = self.workers.jobs

        def most(left: int) -> int:
            return min(_MOST, left // (jobs * _ROUNDS)) if jobs > 1 else 1

        return tiles(configs, self._request, most)

    def _request(self, config: Config) -> LowerRequest | Failure:
        request = self.lowering.request(config)
        if isinstance(request, Failure):
            return request
        return self.hooks.admit(config, request) or request


def warm(
    machine: tuple[str, int | str, int] | None,
    modules: Sequence[str],
    settings: Settings,
) -> None:
    """Start the workers' children and return at once: they take a second to be ready.

    Args:
        machine: Triton's (backend, arch, warp size); None if it is not known yet.
        modules: names of modules that will read artifacts in the children.
        settings: limits of a compile, and how many run at once.
    """
    from asmtune.triton_api.caches import environment

    variables, jobs = environment(), Workers(settings.jobs).jobs
    # On a full disk, or where one dies at once, this is said when it is used.
    with contextlib.suppress(StoreError, OSError, ChildGoneError):
        how = start_compiler, machine, tuple(modules)
        begin_idle(settings.compile_memory_bytes, jobs, variables, *how)


def whole(made: R) -> R:
    """Read all of an artifact."""
    return made


def compile_one(request: LowerRequest, settings: Settings) -> Artifact | Failure:
    """Compile one request here and now, in this process's own child.

    Raises:
        StoreError: no folder for artifacts can be written.
    """
    cache = ArtifactCache.of(settings)
    job: Job[Artifact] = Job(make_artifact, whole, cache.prepare())
    with borrow_sandbox(settings.compile_memory_bytes) as sandbox:
        made = made_in(sandbox, request, job, settings)
    if made.unwritten is not None:
        cache.put(request.digest, made.unwritten)
    outcome = made.outcome
    return outcome if isinstance(outcome, Failure) else outcome.reading
