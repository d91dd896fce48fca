"""A worker's job: compiles a share of the configs, stores and reads each artifact."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, TypeVar

from asmtune.base.errors import CompileError, ParseError, StoreError
from asmtune.base.fingerprint import version_of
from asmtune.base.settings import Settings
from asmtune.compile.artifacts import (
    ArtifactFolders,
    decode_artifact,
    encode_artifact,
    read_artifact,
    write_artifact,
)
from asmtune.compile.lower import LowerRequest
from asmtune.compile.sandbox import JobCancelledError, Sandbox, borrow_sandbox
from asmtune.compile.stored_ir import read_sketch, write_sketch
from asmtune.core.records.artifacts import Artifact, Failure, Sketch

R = TypeVar("R")


@dataclass(frozen=True)
class CompiledConfig(Generic[R]):
    """Holds the digest of a compiled config's artifact, and what was read off it."""

    digest: str
    reading: R


Outcome = CompiledConfig[R] | Failure


@dataclass(frozen=True)
class CompileItem:
    """Holds one config to compile, by its position.

    Attributes:
        entry: its entry in the calling process's cache, for a worker that may not see it.
    """

    position: int
    request: LowerRequest
    entry: bytes | None = None


@dataclass(frozen=True)
class ItemResult(Generic[R]):
    """Holds the outcome of an item, by its position: what was read, or the failure.

    Attributes:
        entry: the encoded artifact, if the worker could not write it to the calling process's
            cache because that is on another machine, or full.
    """

    position: int
    outcome: Outcome[R]
    entry: bytes | None = None


Made = tuple[Artifact | Sketch | Failure, bytes | None]
Maker = Callable[[CompileItem, "CompileSite"], Made]


@dataclass(frozen=True)
class CompileJob(Generic[R]):
    """Holds a worker's share, in an order in which items reuse what others made.

    Attributes:
        make: `make_artifact` or `make_sketch`.
        read: what to take from the artifact or sketch.
        place: folders of the calling process's cache.
        flag: a file that exists once the job is cancelled.
        triton: version of Triton in the calling process, which the digests depend on.
    """

    items: tuple[CompileItem, ...]
    make: Maker
    read: Callable[[Any], R]
    settings: Settings
    place: ArtifactFolders
    flag: Path
    triton: str = field(default_factory=lambda: version_of("triton"))


@dataclass(frozen=True)
class CompileSite:
    """Holds a worker's limits, folders and compiler.

    Attributes:
        place: folders of the calling process's cache; None if they are not visible here.
        flag: a file that exists once nobody waits any more.
    """

    settings: Settings
    place: ArtifactFolders | None
    sandbox: Sandbox
    flag: Path | None = None

    def lookup(self, item: CompileItem) -> Artifact | Failure | None:
        """Return the stored outcome of an item, or None."""
        if item.entry is not None:
            return decode_artifact(item.request.digest, item.entry)
        return self.stored(item.request.digest)

    def stored(self, digest: str) -> Artifact | Failure | None:
        """Return the outcome of a digest in the calling process's cache, or None."""
        for folder in self.place.folders if self.place else ():
            with contextlib.suppress(StoreError):
                if (outcome := read_artifact(folder, digest)) is not None:
                    return outcome
        return None


def work(job: CompileJob[R]) -> list[ItemResult[R]]:
    """Compile the items of a job, up to where it is cancelled.

    Raises:
        CompileError: this machine has another Triton than the calling process.
    """
    if (here := version_of("triton")) != job.triton:
        raise CompileError(
            f"worker on {platform.node()}: triton {here}, but {job.triton} where it is asked for; "
            "install the same"
        )
    place = job.place if job.place.is_here else None
    done: list[ItemResult[R]] = []
    with borrow_sandbox(job.settings.compile_memory_bytes) as sandbox:
        site = CompileSite(job.settings, place, sandbox, job.flag)
        try:
            for item in job.items:
                done.append(_done(item, job, site))
        except JobCancelledError:
            sandbox.begin()  # for the next job: a child takes a second to start
    return done


def failed_job(job: CompileJob[R]) -> list[ItemResult[R]]:
    """Return a failure for each item of a job whose worker died twice."""
    detail = "the worker died, of what it read or for want of memory"
    return [ItemResult(item.position, Failure("start", "crash", detail)) for item in job.items]


def _done(item: CompileItem, job: CompileJob[R], site: CompileSite) -> ItemResult[R]:
    if job.flag.exists():
        raise JobCancelledError
    outcome, entry = job.make(item, site)
    if isinstance(outcome, Failure):
        return ItemResult(item.position, outcome, entry)
    try:
        return ItemResult(item.position, CompiledConfig(outcome.digest, job.read(outcome)), entry)
    except ParseError as error:
        return ItemResult(item.position, Failure("read", "parse", str(error)), entry)


def _artifact(outcome: Artifact | Failure | None) -> Artifact | None:
    return outcome if isinstance(outcome, Artifact) else None


def make_artifact(item: CompileItem, site: CompileSite) -> tuple[Artifact | Failure, bytes | None]:
    """Make an item's artifact, or read it from disk; return also what is yet to be stored."""
    known = site.lookup(item)
    if known is not None:
        return known, None
    request, uncapped = item.request, item.request.uncapped_digest
    parent = None if uncapped is None else site.stored(uncapped)
    limit_s, flag = site.settings.compile_timeout_s, site.flag
    outcome = site.sandbox.compile(request, limit_s, flag, _artifact(parent))
    entry = encode_artifact(request.digest, outcome)
    if entry is not None and site.place is not None:
        with contextlib.suppress(StoreError):
            write_artifact(site.place.folders[-1], request.digest, entry)
            return outcome, None
    return outcome, entry


def make_sketch(item: CompileItem, site: CompileSite) -> tuple[Sketch | Failure, bytes | None]:
    """Make an item's sketch, or take it from disk: its own, or that of its artifact."""
    known = site.lookup(item)
    if isinstance(known, Artifact):
        return Sketch(known.digest, known.arch, known.outputs["ttgir"], known.metadata), None
    if known is not None:
        return known, None
    folders = site.place.folders if site.place else ()
    if (stored := read_sketch(folders, item.request.digest)) is not None:
        return stored, None
    made = site.sandbox.sketch(item.request, site.settings.compile_timeout_s, site.flag)
    if isinstance(made, Sketch):
        write_sketch(folders, made)
    return made, None


@dataclass(frozen=True)
class StartCompiler:
    """Starts a worker's child and imports the reader: both take a second at first.

    Attributes:
        machine: Triton's (backend, arch, warp size); None if it is not known yet: then the child
            imports Triton, and nobody waits for it.
        environment: variables that the compiler reads; None for one that is not set.
        memory_bytes: address space of the child.
        modules: what reads artifacts there.
    """

    machine: tuple[str, int | str, int] | None
    environment: Mapping[str, str | None]
    memory_bytes: int
    modules: tuple[str, ...]

    def __call__(self) -> None:
        """Wait until the child is ready to compile."""
        with borrow_sandbox(self.memory_bytes) as sandbox:
            sandbox.begin(self.environment)
            for name in self.modules:
                import_module(name)
            if self.machine is not None:
                sandbox.start(self.machine, self.environment)
