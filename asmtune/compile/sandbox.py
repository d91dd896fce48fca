"""Compiles in a child process that is killed at its time limit."""

from __future__ import annotations

import base64
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from asmtune.base.child import Child, ChildGoneError, module_command
from asmtune.base.text import amount
from asmtune.compile.lower import LowerRequest
from asmtune.core.failures import wants_memory
from asmtune.core.records.artifacts import Artifact, Failure, Sketch

_NO_INSTRUCTION: Final = "LLVM ERROR: Cannot select"
_START_S: Final = 60.0  # importing Triton takes 0.3 s, and seconds on a cold disk
_AMPLE_BYTES: Final = 4 << 30
"""Address space that is enough for any compile seen; under less, a signal is put down to it."""

_POLL_S: Final = 0.1  # between two checks of the cancel flag


class JobCancelledError(Exception):
    """Says that nobody waits any more for the compile."""


class Sandbox:
    """Compiles in one child, which is started on demand, and again after it was killed.

    LLVM and ptxas ignore Python's signals, so only killing the process ends a compile. The child
    and everything it started share a process group, which is killed as a whole. The child may take
    `memory_bytes` of address space. Triton reads some variables once, so a request with others
    than the child's gets a new child.
    """

    def __init__(self, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self._child: Child | None = None
        self._environment: Mapping[str, str | None] = {}
        self._variables: Mapping[str, str] = {}
        self._lock = threading.Lock()

    def compile(
        self,
        request: LowerRequest,
        timeout_s: float,
        flag: Path | None = None,
        uncapped: Artifact | None = None,
    ) -> Artifact | Failure:
        """Compile within `timeout_s` seconds, the child's start not counted.

        One request at a time; other threads wait for their turn. Of a config with a register cap,
        `uncapped` is the artifact without it, whose PTX is used where the cap is its one change.

        Raises:
            JobCancelledError: the file `flag` exists: nobody waits any more. The child is killed.
        """
        message = _message(request, sketch=False)
        if uncapped is not None and {"llir", "ptx"} <= set(uncapped.outputs):
            message["uncapped"] = {"metadata": uncapped.metadata, **uncapped.outputs}
        built = self._ask(message, request, timeout_s, flag)
        if isinstance(built, Failure):
            return _of_file(built, request)
        built["cubin"] = base64.b64decode(built["cubin"])
        return Artifact(digest=request.digest, arch=_arch(request), **built)

    def sketch(
        self, request: LowerRequest, timeout_s: float, flag: Path | None = None
    ) -> Sketch | Failure:
        """Compile as far as LLVM, like `compile`."""
        message = _message(request, sketch=True)
        answer = self._ask(message, request, timeout_s, flag)
        if isinstance(answer, Failure):
            return _of_file(answer, request)
        return Sketch(request.digest, _arch(request), answer["ttgir"], answer["metadata"])

    def start(
        self, machine: tuple[str, int | str, int], environment: Mapping[str, str | None]
    ) -> None:
        """Start the child if there is none, and wait until it could compile."""
        request = LowerRequest("", {}, machine, environment, "")
        self._ask({"start": machine}, request, _START_S, None)

    def begin(self, environment: Mapping[str, str | None] | None = None) -> None:
        """Start the child if there is none, by default as the last one was; do not wait."""
        with self._lock:
            if environment is not None:
                self._environment = environment
            self._ready()

    def _ask(
        self,
        message: dict[str, Any],
        request: LowerRequest,
        timeout_s: float,
        flag: Path | None,
    ) -> dict[str, Any] | Failure:
        with self._lock:
            self._environment = environment = request.environment
            is_other = any(
                self._variables.get(name) != value for name, value in environment.items()
            )
            if is_other:
                self.close()
            return self._answer(message, timeout_s, flag)

    def _answer(
        self, message: dict[str, Any], timeout_s: float, flag: Path | None
    ) -> dict[str, Any] | Failure:
        child, stage = self._ready(), "start"
        limit_s = _START_S
        try:
            child.send(message)
            end = time.monotonic() + limit_s
            while True:
                answer = _receive(child, end, flag)
                if "stage" in answer:
                    if stage == "start":
                        limit_s = timeout_s
                        end = time.monotonic() + limit_s
                    stage = answer["stage"]
                    continue
                if "failure" in answer:
                    return self._limited(self._with_diagnostics(Failure(**answer["failure"])))
                result: dict[str, Any] = answer["result"]
                return result
        except TimeoutError:
            child.kill()
            self._child = None
            more = "" if stage == "start" else "; ASMTUNE_COMPILE_TIMEOUT_S sets the limit"
            return Failure(stage, "timeout", f"the compiler was ended after {limit_s:g} s{more}")
        except JobCancelledError:
            self.close()
            raise
        except ChildGoneError:
            return self._crash(stage)

    def close(self) -> None:
        """Kill the child and everything it started."""
        if self._child is not None:
            self._child.kill()
        self._child = None

    def _ready(self) -> Child:
        if self._child is None or not self._child.is_running:
            self.close()
            memory = str(self._memory_bytes)
            variables = {**os.environ, **self._environment}
            self._variables = {n: value for n, value in variables.items() if value is not None}
            command = module_command("asmtune.compile.child_main", memory)
            self._child = Child(command, self._variables)
        return self._child

    def _with_diagnostics(self, failure: Failure) -> Failure:
        """Put the compiler's first error on stderr before a failure of an MLIR pass.

        MLIR turns a segmentation fault in a pass into an ordinary failure. The child may be
        damaged then, so it is not used again.
        """
        if "PassManager" not in failure.detail and "Parse MLIR" not in failure.detail:
            return failure
        assert self._child is not None
        log = self._child.log_lines()
        errors = [line for line in log if " error: " in line]
        self.close()
        from asmtune.triton_api.compiler import compiler_error  # Triton's own modules come with it

        told = compiler_error("\n".join(log))
        lines = [told, *errors[:1], failure.detail] if told else [failure.detail]
        return replace(failure, detail="\n".join(lines))

    def _crash(self, stage: str) -> Failure:
        """Return the failure of a child that ended without an answer."""
        assert self._child is not None
        ended, self._child = self._child.kill(_START_S), None
        if ended.last_line.startswith(_NO_INSTRUCTION):
            # LLVM ends its process then: not the machine's doing, so it would end again.
            return Failure(stage, "compiler", f"the device lacks it: {ended.last_line}")
        cause = f"exit code {ended.code}"
        if ended.signal_name is not None:
            cause = f"signal {ended.signal_name}"
        last = f": {ended.last_line}" if ended.last_line else ""
        text = f"the compiler died with {cause}{last}"
        # MLIR ends with a signal, and no word, where it gets no memory.
        starved = wants_memory(text) or (ended.signal_name and self._memory_bytes < _AMPLE_BYTES)
        return self._limited(Failure(stage, "memory" if starved else "crash", text))

    def _limited(self, failure: Failure) -> Failure:
        """Add the limit to a failure for want of memory."""
        if failure.kind != "memory":
            return failure
        limit = f"its address space has {amount(self._memory_bytes, 'B')}"
        detail = f"{failure.detail}; {limit}: ASMTUNE_COMPILE_MEMORY_MB sets the limit"
        return replace(failure, detail=detail)


def _receive(child: Child, end: float, flag: Path | None) -> dict[str, Any]:
    """Return the child's next message.

    Raises:
        TimeoutError: `end` of the monotonic clock passed.
        JobCancelledError: the flag exists.
        ChildGoneError: the child hung up.
    """
    while True:
        if flag is not None and flag.exists():
            raise JobCancelledError
        left_s = max(0.0, end - time.monotonic())
        try:
            return child.receive(min(left_s, _POLL_S))
        except TimeoutError:
            if time.monotonic() >= end:
                raise


def _message(request: LowerRequest, *, sketch: bool) -> dict[str, Any]:
    return {
        "ttir": request.ttir,
        "options": request.options,
        "machine": request.machine,
        "override": None if request.override is None else asdict(request.override),
        "gluon": request.gluon,
        "compiler": request.compiler,
        "sketch": sketch,
    }


def _of_file(failure: Failure, request: LowerRequest) -> Failure:
    """Add the name of the request's hand-edited file, if any, to a failure."""
    return failure if request.override is None else request.override.failed(failure)


def _arch(request: LowerRequest) -> str:
    backend, arch, _ = request.machine
    return f"sm_{arch}" if backend == "cuda" else str(arch)


_lock = threading.Lock()
_idle: dict[tuple[int, int], list[Sandbox]] = {}


@contextmanager
def borrow_sandbox(memory_bytes: int) -> Iterator[Sandbox]:
    """Lend a sandbox to this thread; it is kept, since starting one takes 0.3 s and more.

    A forked process starts its own, since it shares the pipes of its parent's.
    """
    with _lock:
        idle = _idle.setdefault((os.getpid(), memory_bytes), [])
        sandbox = idle.pop() if idle else Sandbox(memory_bytes)
    try:
        yield sandbox
    finally:
        with _lock:
            idle.append(sandbox)


def release() -> None:
    """End this process's idle children."""
    with _lock:
        for (pid, _), idle in _idle.items():
            while pid == os.getpid() and idle:
                idle.pop().close()
