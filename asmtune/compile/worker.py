"""A worker's job: has a child compile a share of the configs, store and read each artifact."""

from __future__ import annotations

import contextlib
import platform
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

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
from asmtune.compile.sandbox import READ, JobCancelledError, Sandbox, borrow_sandbox
from asmtune.compile.stored_ir import read_sketch, write_sketch
from asmtune.core.records.artifacts import Artifact, Failure, Sketch

if TYPE_CHECKING:
    from asmtune.compile.child_main import ChildCompiler

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
        most: children that may work at once; None for a worker of a cluster.
        triton: version of Triton in the calling process, which the digests depend on.
    """

    items: tuple[CompileItem, ...]
    make: Maker
    read: Callable[[Any], R]
    settings: Settings
    place: ArtifactFolders
    most: int | None = None
    triton: str = field(default_factory=lambda: version_of("triton"))


@dataclass(frozen=True)
class CompileSite:
    """Holds a child's folders and compiler.

    Attributes:
        place: folders of the calling process's cache; None if they are not visible here.
    """

    place: ArtifactFolders | None
    compiler: ChildCompiler

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


def work(job: CompileJob[R], stop: threading.Event | None) -> list[ItemResult[R]]:
    """Have a child compile the items of a job, up to where nobody waits any more.

    Raises:
        CompileError: this machine has another Triton than the calling process.
    """
    if (here := version_of("triton")) != job.triton:
        raise CompileError(
            f"worker on {platform.node()}: triton {here}, but {job.triton} where it is asked for; "
            "install the same"
        )
    how = job.make, job.read, job.place
    settings, most = job.settings, float("inf") if job.most is None else job.most
    done: list[ItemResult[R]] = []
    with borrow_sandbox(settings.compile_memory_bytes, most, stop) as sandbox:
        try:
            for item in job.items:
                done.append(made_in(sandbox, item, how, settings, stop))
        except JobCancelledError:
            sandbox.begin()  # for the next job: a child takes a second to start
    return done


def made_in(
    sandbox: Sandbox,
    item: CompileItem,
    how: tuple[Maker, Callable[[Any], R], ArtifactFolders],
    settings: Settings,
    stop: threading.Event | None = None,
) -> ItemResult[R]:
    """Have a sandbox's child make an item; the failure of one that dies is the item's.

    Raises:
        JobCancelledError: nobody waits any more.
    """
    request = item.request
    result = sandbox.call(
        compile_item, item, *how,
        environment=request.environment, limit_s=settings.compile_timeout_s, stop=stop,
    )  # fmt: skip
    if not isinstance(result, Failure):
        made: ItemResult[R] = result
        if isinstance(made.outcome, Failure):
            made = replace(made, outcome=sandbox.limited(made.outcome))
        return made
    failure = _of_file(result, item)
    # LLVM that lacks an instruction ends its process, and would again.
    return ItemResult(item.position, failure, encode_artifact(request.digest, failure))


def compile_item(
    compiler: ChildCompiler,
    item: CompileItem,
    make: Maker,
    read: Callable[[Any], R],
    place: ArtifactFolders,
) -> ItemResult[R]:
    """Make an item's artifact or sketch in a child, and read it."""
    outcome, entry = make(item, CompileSite(place if place.is_here else None, compiler))
    if isinstance(outcome, Failure):
        return ItemResult(item.position, outcome, entry)
    compiler.announce(READ)
    try:
        return ItemResult(item.position, CompiledConfig(outcome.digest, read(outcome)), entry)
    except ParseError as error:
        return ItemResult(item.position, Failure("read", "parse", str(error)), entry)


def make_artifact(item: CompileItem, site: CompileSite) -> tuple[Artifact | Failure, bytes | None]:
    """Make an item's artifact, or read it from disk; return also what is yet to be stored."""
    known = site.lookup(item)
    if known is not None:
        return known, None
    request, uncapped = item.request, item.request.uncapped_digest
    message = _message(item)
    parent = None if uncapped is None else site.stored(uncapped)
    if isinstance(parent, Artifact) and {"llir", "ptx"} <= set(parent.outputs):
        message["uncapped"] = {"metadata": parent.metadata, **parent.outputs}
    outcome = _told(site.compiler.back_end.build(message), item, site.compiler)
    if not isinstance(outcome, Failure):
        outcome = Artifact(digest=request.digest, arch=_arch(item), **outcome)
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
    digest, folders = item.request.digest, site.place.folders if site.place else ()
    if (stored := read_sketch(folders, digest)) is not None:
        return stored, None
    made = _told(site.compiler.back_end.sketch(_message(item)), item, site.compiler)
    if isinstance(made, Failure):
        return made, None
    sketch = Sketch(digest, _arch(item), made["ttgir"], made["metadata"])
    write_sketch(folders, sketch)
    return sketch, None


def _told(made: Any, item: CompileItem, compiler: ChildCompiler) -> Any:
    """Put the compiler's first error on stderr before a failure of an MLIR pass.

    MLIR turns a segmentation fault in a pass into an ordinary failure. The child may be damaged
    then, so it is not used again.
    """
    if not isinstance(made, Failure):
        return made
    if "PassManager" in made.detail or "Parse MLIR" in made.detail:
        from asmtune.triton_api.compiler import compiler_error

        compiler.is_damaged = True
        log = compiler.log()
        errors = [line for line in log.splitlines() if " error: " in line]
        if told := compiler_error(log):
            made = replace(made, detail="\n".join([told, *errors[:1], made.detail]))
    return _of_file(made, item)


def _of_file(failure: Failure, item: CompileItem) -> Failure:
    """Add the name of the request's hand-edited file, if any, to a failure."""
    override = item.request.override
    return failure if override is None else override.failed(failure)


def _message(item: CompileItem) -> dict[str, Any]:
    request = item.request
    return {
        "ttir": request.ttir,
        "options": request.options,
        "machine": request.machine,
        "override": None if request.override is None else asdict(request.override),
        "gluon": request.gluon,
        "compiler": request.compiler,
    }


def _arch(item: CompileItem) -> str:
    backend, arch, _ = item.request.machine
    return f"sm_{arch}" if backend == "cuda" else str(arch)


def start_compiler(
    compiler: ChildCompiler, machine: tuple[str, int | str, int] | None, modules: tuple[str, ...]
) -> None:
    """Import in a child what reads artifacts, and make its compiler: both take a second at first.

    Args:
        compiler: the child's.
        machine: Triton's (backend, arch, warp size); None if it is not known yet.
        modules: names of modules.
    """
    for name in modules:
        import_module(name)
    from asmtune.compile.back_end import toolchain_of

    if machine is not None:
        toolchain_of(*machine)
    _ = compiler.back_end
