"""Threads that compile: what each asks of its child for a request, and what the child does."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from asmtune.base.errors import ParseError, StoreError
from asmtune.base.settings import Settings
from asmtune.compile.artifacts import read_artifact, read_sketch, write_artifact, write_sketch
from asmtune.compile.lower import LowerRequest
from asmtune.compile.sandbox import READ, JobCancelledError, Sandbox
from asmtune.core.records.artifacts import Artifact, Failure, Sketch
from asmtune.triton_api.user_state import carried

if TYPE_CHECKING:
    from asmtune.compile.child_main import ChildCompiler

R = TypeVar("R")
T = TypeVar("T")
Lasting = Artifact | Failure


@dataclass(frozen=True)
class CompiledConfig(Generic[R]):
    """Holds the digest of a compiled config's artifact, and what was read off it."""

    digest: str
    reading: R


Outcome = CompiledConfig[R] | Failure

Maker = Callable[
    ["ChildCompiler", LowerRequest, Sequence[Path]], tuple[Artifact | Sketch | Failure, bool]
]
"""Makes an artifact or a sketch; tells too whether it is yet to be stored."""


@dataclass(frozen=True)
class Made(Generic[R]):
    """Holds the outcome of a request: what was read, or the failure.

    Attributes:
        unwritten: the artifact or failure, if the child could not store it: its disk is full.
    """

    outcome: Outcome[R]
    unwritten: Lasting | None = None


@dataclass(frozen=True)
class Job(Generic[R]):
    """Says what a child makes of requests.

    Attributes:
        make: `make_artifact` or `make_sketch`.
        read: what to take from the artifact or sketch.
        folders: where artifacts lie; the last one is written to.
    """

    make: Maker
    read: Callable[[Any], R]
    folders: Sequence[Path]


def made_in(
    sandbox: Sandbox,
    request: LowerRequest,
    job: Job[R],
    settings: Settings,
    stop: threading.Event | None = None,
) -> Made[R]:
    """Have a sandbox's child do a job for a request; one that dies has failed at it.

    Raises:
        JobCancelledError: nobody waits any more.
    """
    result = sandbox.call(
        compile_request, request, job,
        environment=request.environment, limit_s=settings.compile_timeout_s, stop=stop,
    )  # fmt: skip
    if isinstance(result, Failure):
        failure = _of_file(result, request)
        # LLVM that lacks an instruction ends its process, and would again.
        return Made(failure, failure)
    made: Made[R] = result
    if isinstance(made.outcome, Failure):
        made = replace(made, outcome=sandbox.limited(made.outcome))
    return made


def compile_request(compiler: ChildCompiler, request: LowerRequest, job: Job[R]) -> Made[R]:
    """Make a request's artifact or sketch in a child, and read it."""
    made, is_unwritten = job.make(compiler, request, job.folders)
    unwritten = made if is_unwritten and not isinstance(made, Sketch) else None
    if isinstance(made, Failure):
        return Made(made, unwritten)
    compiler.announce(READ)
    try:
        return Made(CompiledConfig(made.digest, job.read(made)), unwritten)
    except ParseError as error:
        return Made(Failure("read", "parse", str(error)), unwritten)


def make_artifact(
    compiler: ChildCompiler, request: LowerRequest, folders: Sequence[Path]
) -> tuple[Artifact | Failure, bool]:
    """Make a request's artifact, or read it from disk; tell whether it is yet to be stored."""
    known = read_artifact(folders, request.digest)
    if known is not None:
        return known, False
    outcome = _told(compiler.back_end.build(_message(request)), request, compiler)
    if not isinstance(outcome, Failure):
        outcome = Artifact(digest=request.digest, arch=_arch(request), **outcome)
    with contextlib.suppress(StoreError):
        write_artifact(folders, request.digest, outcome)
        return outcome, False
    return outcome, True


def make_sketch(
    compiler: ChildCompiler, request: LowerRequest, folders: Sequence[Path]
) -> tuple[Sketch | Failure, bool]:
    """Make a request's sketch, or take it from disk: its own, or that of its artifact."""
    known = read_artifact(folders, request.digest)
    if isinstance(known, Artifact):
        return Sketch(known.digest, known.arch, known.outputs["ttgir"], known.metadata), False
    found = known or read_sketch(folders, request.digest)
    if found is not None:
        return found, False
    made = _told(compiler.back_end.sketch(_message(request)), request, compiler)
    if isinstance(made, Failure):
        return made, False
    sketch = Sketch(request.digest, _arch(request), made["ttgir"], made["metadata"])
    write_sketch(folders, sketch)
    return sketch, False


def _told(made: Any, request: LowerRequest, compiler: ChildCompiler) -> Any:
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
    return _of_file(made, request)


def _of_file(failure: Failure, request: LowerRequest) -> Failure:
    """Add the name of the request's hand-edited file, if any, to a failure."""
    override = request.override
    return failure if override is None else override.failed(failure)


def _message(request: LowerRequest) -> dict[str, Any]:
    return {
        "ttir": request.ttir,
        "options": request.options,
        "machine": request.machine,
        "override": None if request.override is None else asdict(request.override),
        "gluon": request.gluon,
        "compiler": request.compiler,
    }


def _arch(request: LowerRequest) -> str:
    backend, arch, _ = request.machine
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


Stop = threading.Event
"""Set when nobody waits any more for a task."""


class Workers:
    """Runs tasks in threads.

    Args:
        jobs: tasks at once.

    Attributes:
        jobs: how many tasks run at once.
    """

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self._stops: set[Stop] = set()

    def unordered(
        self, work: Callable[[T, Stop], R], tasks: Iterator[T]
    ) -> Generator[R, None, None]:
        """Yield results as they come; a task is drawn when a worker is free.

        Closing it ends the running tasks.

        Args:
            work: gets a task, and what is set when nobody waits.
            tasks: drawn in the workers' threads, one at a time.

        Raises:
            Exception: whatever `work` or `tasks` raises.
        """
        stop, turn, results = Stop(), threading.Lock(), queue.SimpleQueue[Any]()
        self._stops.add(stop)

        def draw() -> Any:
            with turn:
                return _NONE if stop.is_set() else next(tasks, _NONE)

        def run() -> None:
            with contextlib.suppress(JobCancelledError):
                while (task := draw()) is not _NONE:
                    results.put(work(task, stop))

        with ThreadPoolExecutor(self.jobs, "asmtune-compile", carried()) as threads:
            try:
                running = [threads.submit(run) for _ in range(self.jobs)]
                for thread in running:
                    thread.add_done_callback(results.put)
                yield from _collected(results, self.jobs, stop)
            finally:
                stop.set()
                self._stops.discard(stop)

    def stop(self) -> None:
        """End the iterators of other threads; uses that begin later run."""
        for stop in list(self._stops):
            stop.set()


_NONE: Final = object()
"""Stands for a task where none is left."""


def _collected(results: queue.SimpleQueue[Any], threads: int, stop: Stop) -> Iterator[Any]:
    """Yield results until all threads have ended; raise what the first that failed has raised."""
    failed: Future[None] | None = None
    while threads:
        result = results.get()
        if isinstance(result, Future):
            threads -= 1
            if failed is None and result.exception() is not None:
                stop.set()
                failed = result
        elif not stop.is_set():
            yield result
    if failed is not None:
        failed.result()
