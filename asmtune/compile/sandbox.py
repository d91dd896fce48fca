"""Calls functions in child processes, each of which is killed at its time limit."""

from __future__ import annotations

import atexit
import base64
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from asmtune.base.child import Child, ChildGoneError, module_command
from asmtune.base.text import amount
from asmtune.compile.child_main import packed
from asmtune.core.failures import wants_memory
from asmtune.core.records.artifacts import Failure

_NO_INSTRUCTION: Final = "LLVM ERROR: Cannot select"
_START_S: Final = 60.0  # importing Triton takes 0.3 s, and seconds on a cold disk
_AMPLE_BYTES: Final = 4 << 30
"""Address space that is enough for any compile seen; under less, a signal is put down to it."""

_POLL_S: Final = 0.1  # between two looks at whether anybody waits
READ: Final = "read"
"""The stage in which a finished artifact is stored and read."""

Variables = Mapping[str, str | None]
"""Variables that the compiler reads; None for one that is not set."""


class JobCancelledError(Exception):
    """Says that nobody waits any more for the compile."""


class Sandbox:
    """Calls functions in one child, which is started on demand, and again after it was killed.

    LLVM and ptxas ignore Python's signals, so only killing the process ends a compile. The child
    and everything it started share a process group, which is killed as a whole. The child may take
    `memory_bytes` of address space. Triton reads some variables once, so a request with others
    than the child's gets a new child.
    """

    def __init__(self, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self._child: Child | None = None
        self._environment: Variables = {}
        self._variables: Mapping[str, str] = {}
        self._lock = threading.Lock()

    def call(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        environment: Variables | None = None,
        limit_s: float = float("inf"),
        stop: threading.Event | None = None,
    ) -> Any:
        """Return what `function(compiler, *arguments)` returns in the child, or why it cannot.

        One call at a time; other threads wait for their turn.

        Args:
            function: of a module of asmtune; gets the child's `ChildCompiler` first.
            arguments: what it gets besides; they pickle.
            environment: variables that its child must have; by default any child will do.
            limit_s: seconds from the first stage that it announces to the stage `READ`.
            stop: set when nobody waits any more.

        Raises:
            JobCancelledError: `stop` is set. The child is killed.
            Exception: whatever the function raises.
        """
        message = {"call": packed((function, arguments)), "path": sys.path}
        with self._lock:
            self._fit(environment)
            answer = self._answer(message, limit_s, stop)
        if isinstance(answer, Failure):
            return self.limited(answer)
        if "error" in answer:
            raise pickle.loads(base64.b64decode(answer["error"]))
        result = pickle.loads(base64.b64decode(answer["result"]))
        if answer["ends"]:
            self.close()
        return result

    def begin(
        self,
        environment: Variables | None = None,
        function: Callable[..., Any] | None = None,
        *arguments: Any,
    ) -> None:
        """Start the child if it does not run, and have it call a function; wait for neither.

        Raises:
            StoreError: there is no room for its temporary file.
        """
        with self._lock:
            self._fit(environment)
            child = self._ready()
            if function is not None:
                call = packed((function, arguments))
                child.send({"call": call, "path": sys.path, "quiet": True})

    def close(self) -> None:
        """Kill the child and everything it started."""
        if self._child is not None:
            self._child.kill()
        self._child = None

    def _fit(self, environment: Variables | None) -> None:
        """End a child that has other variables than it must have."""
        if environment is not None:
            self._environment = environment
            if any(self._variables.get(name) != value for name, value in environment.items()):
                self.close()

    def _ready(self) -> Child:
        if self._child is None or not self._child.is_running:
            self.close()
            variables = {**os.environ, **self._environment}
            self._variables = {n: value for n, value in variables.items() if value is not None}
            command = module_command("asmtune.compile.child_main", str(self._memory_bytes))
            self._child = Child(command, self._variables)
        return self._child

    def _answer(
        self, message: dict[str, Any], timeout_s: float, stop: threading.Event | None
    ) -> dict[str, Any] | Failure:
        child, stage = self._ready(), "start"
        limit_s = _START_S if timeout_s < float("inf") else timeout_s
        try:
            child.send(message)
            end = time.monotonic() + limit_s
            while True:
                answer = _receive(child, end, stop)
                if "stage" not in answer:
                    return answer
                if stage == "start":
                    limit_s, end = timeout_s, time.monotonic() + timeout_s
                if (stage := answer["stage"]) == READ:
                    limit_s, end = _START_S, time.monotonic() + _START_S
        except TimeoutError:
            self.close()
            more = "" if stage in ("start", READ) else "; ASMTUNE_COMPILE_TIMEOUT_S sets the limit"
            return Failure(stage, "timeout", f"the compiler was ended after {limit_s:g} s{more}")
        except JobCancelledError:
            self.close()
            raise
        except ChildGoneError:
            return self._crash(stage)

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
        return Failure(stage, "memory" if starved else "crash", text)

    def limited(self, failure: Failure) -> Failure:
        """Add the limit to a failure for want of memory."""
        if failure.kind != "memory":
            return failure
        limit = f"its address space has {amount(self._memory_bytes, 'B')}"
        detail = f"{failure.detail}; {limit}: ASMTUNE_COMPILE_MEMORY_MB sets the limit"
        return replace(failure, detail=detail)


def _receive(child: Child, end: float, stop: threading.Event | None) -> dict[str, Any]:
    """Return the child's next message.

    Raises:
        TimeoutError: `end` of the monotonic clock passed.
        JobCancelledError: `stop` is set.
        ChildGoneError: the child hung up.
    """
    while True:
        if stop is not None and stop.is_set():
            raise JobCancelledError
        left_s = max(0.0, end - time.monotonic())
        try:
            return child.receive(min(left_s, _POLL_S))
        except TimeoutError:
            if time.monotonic() >= end:
                raise


_free = threading.Condition()
_idle: dict[tuple[int, int], list[Sandbox]] = {}
_lent: dict[tuple[int, int], int] = {}


def _unlock_in_child() -> None:
    global _free
    _free = threading.Condition()  # another thread may have held it while this process forked off


os.register_at_fork(after_in_child=_unlock_in_child)


@contextmanager
def borrow_sandbox(
    memory_bytes: int, most: float = float("inf"), stop: threading.Event | None = None
) -> Iterator[Sandbox]:
    """Lend a sandbox to this thread; it is kept, since starting one takes 0.3 s and more.

    A forked process starts its own, since it shares the pipes of its parent's.

    Args:
        memory_bytes: address space of its child.
        most: sandboxes that may be lent at once; others are waited for.
        stop: set when nobody waits any more.

    Raises:
        JobCancelledError: `stop` is set before one is free.
    """
    key = os.getpid(), memory_bytes
    with _free:
        while _lent.get(key, 0) >= most:
            _free.wait(_POLL_S)
            if stop is not None and stop.is_set():
                raise JobCancelledError
        _lent[key] = _lent.get(key, 0) + 1
        idle = _idle.setdefault(key, [])
        sandbox = idle.pop() if idle else Sandbox(memory_bytes)
    try:
        yield sandbox
    finally:
        with _free:
            idle.append(sandbox)
            _lent[key] -= 1
            _free.notify_all()


def begin_idle(
    memory_bytes: int, most: int, environment: Variables, function: Callable[..., Any], *given: Any
) -> None:
    """Start children as long as fewer than `most` are lent or ready; have those call a function.

    Raises:
        StoreError: there is no room for their temporary files.
    """
    key = os.getpid(), memory_bytes
    with _free:
        idle = _idle.setdefault(key, [])
        count = max(0, most - _lent.get(key, 0))
        idle.extend(Sandbox(memory_bytes) for _ in range(count - len(idle)))
        chosen = idle[-count:] if count else []
    for sandbox in chosen:
        sandbox.begin(environment, function, *given)


@atexit.register
def release() -> None:
    """End this process's idle children."""
    with _free:
        for (pid, _), idle in _idle.items():
            while pid == os.getpid() and idle:
                idle.pop().close()
