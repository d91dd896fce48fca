"""Many configs at once: joblib hands families of configs to workers.

A family is configs whose PTX is likely the same but for the register cap;
one worker takes it whole, so that LLVM runs once for all of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from joblib import Parallel, delayed

from asmtune.compile.artifacts import ArtifactCache
from asmtune.compile.lower import Lowering, Request
from asmtune.compile.sandbox import Sandbox
from asmtune.config import Config
from asmtune.errors import ParseError
from asmtune.records import Artifact, Failure, Sketch
from asmtune.settings import Settings

R = TypeVar("R")


@dataclass(frozen=True)
class Compiled(Generic[R]):
    """A config that compiled: where its artifact lies, and what was read off it."""

    digest: str
    reading: R


Outcome = Compiled[R] | Failure


@dataclass(frozen=True)
class Hooks(Generic[R]):
    """What the flow does at the two ends of a compile.

    Attributes:
        read: what to take from an artifact, or from a sketch; called in the worker,
            so it must pickle: a function of a module, or a `functools.partial` of one.
        admit: called in this process with a config and its request; a
            failure keeps the config from the back end.
        known: outcomes by request digest; consulted before a worker is asked,
            and filled. One compile serves every problem of equal specialisation.
            Readings of sketches and of artifacts are not kept in one mapping.
    """

    read: Callable[[Any], R]
    admit: Callable[[Config, Request], Failure | None]
    known: MutableMapping[str, Compiled[R] | Failure] = field(default_factory=dict)


Maker = Callable[[Request, Settings], Artifact | Sketch | Failure]


@dataclass(frozen=True)
class _Job(Generic[R]):
    """One worker's share: requests of a family, by the configs' positions."""

    items: tuple[tuple[int, Request], ...]
    make: Maker
    read: Callable[[Any], R]
    settings: Settings


def compile_configs(
    lowering: Lowering, configs: Sequence[Config], hooks: Hooks[R], settings: Settings
) -> Iterator[tuple[int, Outcome[R]]]:
    """Compiles configs in parallel; yields each as it is done.

    Yields:
        The config's position in `configs`, with what was read or the failure.

    Raises:
        ProblemError: arguments and config do not fit the kernel.
        StoreError: the artifacts' folder cannot be written.
    """
    yield from _made_of(_built, lowering, configs, hooks, settings)


def sketch_configs(
    lowering: Lowering, configs: Sequence[Config], hooks: Hooks[R], settings: Settings
) -> Iterator[tuple[int, Outcome[R]]]:
    """Compiles configs as far as LLVM, in parallel; yields each as it is done.

    Takes a tenth of a compile. Nothing is kept on disk; an artifact that lies
    there stands for its sketch. `hooks.read` is given a `Sketch`.

    Yields:
        The config's position in `configs`, with what was read or the failure.

    Raises:
        ProblemError: arguments and config do not fit the kernel.
        StoreError: the artifacts' folder cannot be read.
    """
    yield from _made_of(_sketched, lowering, configs, hooks, settings)


def _made_of(
    make: Maker,
    lowering: Lowering,
    configs: Sequence[Config],
    hooks: Hooks[R],
    settings: Settings,
) -> Iterator[tuple[int, Outcome[R]]]:
    cache = ArtifactCache(settings.artifacts_dir, settings.artifacts_bytes)
    cache.prepare()
    settled: list[tuple[int, Outcome[R]]] = []
    digests: dict[int, str] = {}

    def jobs() -> Iterator[_Job[R]]:
        for family in _families(lowering, configs, hooks):
            fresh = []
            for position, request in family:
                if isinstance(request, Failure):
                    settled.append((position, request))
                elif (digest := request.digest) in hooks.known:
                    settled.append((position, hooks.known[digest]))
                else:
                    digests[position] = digest
                    fresh.append((position, request))
            if fresh:
                yield _Job(tuple(fresh), make, hooks.read, settings)

    parallel = Parallel(n_jobs=settings.jobs, return_as="generator_unordered", batch_size=1)
    try:
        for outcomes in parallel(delayed(_compile_family)(job) for job in jobs()):
            for position, outcome in outcomes:
                hooks.known[digests[position]] = outcome
                yield position, outcome
        yield from settled
    finally:
        cache.trim()


def _families(
    lowering: Lowering, configs: Sequence[Config], hooks: Hooks[R]
) -> Iterator[list[tuple[int, Request | Failure]]]:
    """Requests in families, lowered only when a worker is about to be free."""
    groups: dict[Config, list[int]] = {}
    for position, config in enumerate(configs):
        bare = Config(config.kwargs, config.num_warps, num_ctas=config.num_ctas)
        groups.setdefault(bare, []).append(position)
    for positions in groups.values():
        families: dict[int, list[tuple[int, Request | Failure]]] = {}
        for position in positions:
            config = configs[position]
            request = lowering.request(config)
            if isinstance(request, Request):
                request = hooks.admit(config, request) or request
            pipelined = isinstance(request, Request) and request.has_dot
            stages = config.num_stages if pipelined else 0
            families.setdefault(stages, []).append((position, request))
        yield from families.values()


def _compile_family(job: _Job[R]) -> list[tuple[int, Outcome[R]]]:
    return [(position, _compile_one(request, job)) for position, request in job.items]


def _compile_one(request: Request, job: _Job[R]) -> Outcome[R]:
    outcome = job.make(request, job.settings)
    if isinstance(outcome, Failure):
        return outcome
    try:
        return Compiled(outcome.digest, job.read(outcome))
    except ParseError as error:
        return Failure("read", "parse", str(error))


def _built(request: Request, settings: Settings) -> Artifact | Failure:
    """The artifact of a request, from disk if it lies there."""
    cache = ArtifactCache(settings.artifacts_dir, settings.artifacts_bytes)
    outcome = cache.get(request.digest)
    if outcome is None:
        sandbox = _worker_sandbox(settings.compile_memory_bytes)
        outcome = sandbox.compile(request, settings.compile_timeout_s)
        cache.put(request.digest, outcome)
    return outcome


def _sketched(request: Request, settings: Settings) -> Sketch | Failure:
    """The sketch of a request, off its artifact if that lies on disk."""
    known = ArtifactCache(settings.artifacts_dir, settings.artifacts_bytes).get(request.digest)
    if isinstance(known, Artifact):
        return Sketch(known.digest, known.arch, known.outputs["ttgir"], known.metadata)
    if known is not None:
        return known
    sandbox = _worker_sandbox(settings.compile_memory_bytes)
    return sandbox.sketch(request, settings.compile_timeout_s)


_sandboxes: dict[tuple[int, int], Sandbox] = {}


def _worker_sandbox(memory_bytes: int) -> Sandbox:
    """This worker's child, kept between jobs: starting Triton takes 0.3 s.

    A process that forked off has its own: the pipes are its parent's.
    """
    return _sandboxes.setdefault((os.getpid(), memory_bytes), Sandbox(memory_bytes))


def compile_one(request: Request, settings: Settings) -> Artifact | Failure:
    """Compiles one request here and now, in this process's own child."""
    return _built(request, settings)


def sketch_one(request: Request, settings: Settings) -> Sketch | Failure:
    """Compiles one request as far as LLVM, here and now, in this process's own child."""
    return _sketched(request, settings)


def release() -> None:
    """Ends this process's own children, if it has any."""
    mine = os.getpid()
    for key in [key for key in _sandboxes if key[0] == mine]:
        _sandboxes.pop(key).close()
