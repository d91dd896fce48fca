"""A child process that compiles, with a deadline that really ends it."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any, Final

from asmtune.base.processes import start
from asmtune.compile.lower import LowerRequest
from asmtune.core.records.artifacts import Artifact, Failure, Sketch

_START_S: Final = 60.0  # importing Triton takes 0.3 s, and seconds on a cold disk
_LOOK_S: Final = 0.1  # between two looks at whether anybody waits


class GivenUpError(Exception):
    """Nobody waits any more for what was asked of a child."""


class _Deadline:
    """A moment that can be put off."""

    def __init__(self, seconds: float) -> None:
        self.restart(seconds)

    def restart(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        return max(0.0, self._end - time.monotonic())


class Sandbox:
    """One child, started when first needed, and again after it had to be killed.

    LLVM and ptxas do not hear a Python signal, so that only killing the
    process ends a compile: the child and all that it started share a process
    group, which goes as a whole.

    Args:
        memory_bytes: address space the child may take.
    """

    def __init__(self, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._lock = threading.Lock()

    def compile(
        self, request: LowerRequest, timeout_s: float, flag: Path | None = None
    ) -> Artifact | Failure:
        """Compiles within `timeout_s` seconds, the child's start not counted.

        One request at a time; other threads wait for their turn.

        Args:
            request: what to compile.
            timeout_s: seconds it may take.
            flag: a file that says, once it is there, that nobody waits any more.

        Raises:
            GivenUpError: the flag is there; the child is killed.
        """
        built = self._ask(_message(request, sketch=False), timeout_s, flag)
        if isinstance(built, Failure):
            return _of_file(built, request)
        return _artifact(request, built)

    def sketch(
        self, request: LowerRequest, timeout_s: float, flag: Path | None = None
    ) -> Sketch | Failure:
        """Compiles as far as LLVM, like `compile`."""
        made = self._ask(_message(request, sketch=True), timeout_s, flag)
        if isinstance(made, Failure):
            return _of_file(made, request)
        return Sketch(request.digest, _arch(request), made["ttgir"], made["metadata"])

    def start(self, machine: tuple[str, int, int]) -> None:
        """Starts the child if there is none, and waits until it could compile."""
        self._ask({"start": machine}, _START_S, None)

    def begin(self) -> None:
        """Starts the child if there is none; does not wait."""
        with self._lock:
            self._ready()

    def _ask(
        self, message: dict[str, Any], timeout_s: float, flag: Path | None
    ) -> dict[str, Any] | Failure:
        with self._lock:
            return self._answer(message, timeout_s, flag)

    def _answer(
        self, message: dict[str, Any], timeout_s: float, flag: Path | None
    ) -> dict[str, Any] | Failure:
        process, stage = self._ready(), "start"
        limit = _START_S
        try:
            self._send(process, message)
            deadline = _Deadline(_START_S)
            for answer in self._answers(process, deadline, flag):
                if "stage" in answer:
                    if stage == "start":
                        limit = timeout_s
                        deadline.restart(limit)
                    stage = answer["stage"]
                    continue
                if "failure" in answer:
                    return self._refusal(Failure(**answer["failure"]))
                made: dict[str, Any] = answer["made"]
                return made
        except TimeoutError:
            self.close()
            more = "" if stage == "start" else "; ASMTUNE_COMPILE_TIMEOUT_S sets the limit"
            return Failure(stage, "timeout", f"the compiler was ended after {limit:g} s{more}")
        except GivenUpError:
            self.close()
            raise
        except BrokenPipeError:
            pass
        return self._post_mortem(stage)

    def close(self) -> None:
        """Kills the child and whatever it started."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout, self._log):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
        self._process = self._log = None

    def _ready(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.close()
        self._log = tempfile.TemporaryFile(prefix="asmtune-")  # noqa: SIM115
        command = [sys.executable, "-m", "asmtune.compile.child_main", str(self._memory_bytes)]
        self._process = start(command, self._log)
        return self._process

    @staticmethod
    def _send(process: subprocess.Popen[bytes], message: dict[str, Any]) -> None:
        assert process.stdin is not None
        process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()

    @staticmethod
    def _answers(
        process: subprocess.Popen[bytes], deadline: _Deadline, flag: Path | None
    ) -> Iterator[dict[str, Any]]:
        """Lines of the child until it hangs up.

        Raises:
            TimeoutError: the deadline passed.
            GivenUpError: the flag is there.
        """
        assert process.stdout is not None
        pipe, buffer = process.stdout.fileno(), b""
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while True:
                if flag is not None and flag.exists():
                    raise GivenUpError
                if not selector.select(min(deadline.left_s, _LOOK_S)):
                    if not deadline.left_s:
                        raise TimeoutError
                    continue
                chunk = os.read(pipe, 1 << 20)
                if not chunk:
                    return
                *lines, buffer = (buffer + chunk).split(b"\n")
                yield from map(json.loads, lines)

    def _refusal(self, failure: Failure) -> Failure:
        """A failure that the child tells of, with what its compiler said on stderr.

        MLIR turns a segmentation fault in a pass into an ordinary failure, so
        that a child that tells of one is in doubt, and is not asked again.
        """
        if "PassManager" not in failure.detail and "Parse MLIR" not in failure.detail:
            return failure
        errors = [line for line in self._said() if " error: " in line]
        self.close()
        return replace(failure, detail="\n".join([failure.detail, *errors[:1]]))

    def _said(self) -> list[str]:
        assert self._log is not None
        self._log.seek(0)
        return self._log.read().decode(errors="replace").strip().splitlines()

    def _post_mortem(self, stage: str) -> Failure:
        """What is known of a child that went without an answer."""
        assert self._process is not None
        code = self._process.wait()
        said = self._said()
        cause = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        self.close()
        last = f": {said[-1][:300]}" if said else ""
        return Failure(stage, "crash", f"the compiler died with {cause}{last}")


def _message(request: LowerRequest, *, sketch: bool) -> dict[str, Any]:
    return {
        "ttir": request.ttir,
        "options": request.options,
        "machine": request.machine,
        "override": None if request.override is None else asdict(request.override),
        "sketch": sketch,
    }


def _artifact(request: LowerRequest, built: dict[str, Any]) -> Artifact:
    return Artifact(
        digest=request.digest,
        entry=built["entry"],
        arch=_arch(request),
        outputs=built["outputs"],
        cubin=base64.b64decode(built["cubin"]),
        metadata=built["metadata"],
        seconds=built["seconds"],
    )


def _of_file(failure: Failure, request: LowerRequest) -> Failure:
    """A failure that says which hand-edited file it is of, if the request has one."""
    return failure if request.override is None else request.override.failed(failure)


def _arch(request: LowerRequest) -> str:
    return f"sm_{request.machine[1]}"


_lock = threading.Lock()
_idle: dict[tuple[int, int], list[Sandbox]] = {}


@contextmanager
def borrowed(memory_bytes: int) -> Iterator[Sandbox]:
    """A sandbox for this thread alone; starting another takes 0.3 s and more, so it is kept.

    A process that forked off has its own: the pipes are its parent's.

    Args:
        memory_bytes: address space of its child.
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
    """Ends this process's own children that have nothing to do."""
    with _lock:
        for (pid, _), idle in _idle.items():
            while pid == os.getpid() and idle:
                idle.pop().close()
