"""Many configs at once: joblib hands families of configs to workers.

A family is configs whose PTX is likely the same but for the register cap;
one worker takes it whole, so that LLVM runs once for all of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from joblib import Parallel, delayed

from asmtune.compile.artifacts import ArtifactCache
from asmtune.compile.lower import Lowering, Request
from asmtune.compile.sandbox import Sandbox
from asmtune.config import Config
from asmtune.errors import ParseError
from asmtune.records import Artifact, Failure
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
        read: what to take from an artifact; called in the worker, so it must
            pickle: a function of a module, or a `functools.partial` of one.
        admit: called in this process with a config and its request; a
            failure keeps the config from the back end.
        known: outcomes by request digest; consulted before a worker is asked,
            and filled. One compile serves every problem of equal specialisation.
    """

    read: Callable[[Artifact], R]
    admit: Callable[[Config, Request], Failure | None]
    known: MutableMapping[str, Compiled[R] | Failure] = field(default_factory=dict)


@dataclass(frozen=True)
class _Job(Generic[R]):
    """One worker's share: requests of a family, by the configs' positions."""

    items: tuple[tuple[int, Request], ...]
    read: Callable[[Artifact], R]
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
                yield _Job(tuple(fresh), hooks.read, settings)

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
    cache = ArtifactCache(job.settings.artifacts_dir, job.settings.artifacts_bytes)
    digest = request.digest
    outcome = cache.get(digest)
    if outcome is None:
        sandbox = _worker_sandbox(job.settings.compile_memory_bytes)
        outcome = sandbox.compile(request, job.settings.compile_timeout_s)
        cache.put(digest, outcome)
    if isinstance(outcome, Failure):
        return outcome
    try:
        return Compiled(digest, job.read(outcome))
    except ParseError as error:
        return Failure("read", "parse", str(error))


_sandboxes: dict[tuple[int, int], Sandbox] = {}


def _worker_sandbox(memory_bytes: int) -> Sandbox:
    """This worker's child, kept between jobs: starting Triton takes 0.3 s.

    A process that forked off has its own: the pipes are its parent's.
    """
    return _sandboxes.setdefault((os.getpid(), memory_bytes), Sandbox(memory_bytes))


def compile_one(request: Request, settings: Settings) -> Artifact | Failure:
    """Compiles one request here and now, in this process's own child."""
    compiled = _compile_one(request, _Job((), _whole, settings))
    return compiled if isinstance(compiled, Failure) else compiled.reading


def _whole(artifact: Artifact) -> Artifact:
    return artifact


def release() -> None:
    """Ends this process's own children, if it has any."""
    mine = os.getpid()
    for key in [key for key in _sandboxes if key[0] == mine]:
        _sandboxes.pop(key).close()
