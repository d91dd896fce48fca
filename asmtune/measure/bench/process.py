"""A child process that answers in lines of JSON, and that can always be ended."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from asmtune.base.errors import InputError, MeasureError
from asmtune.base.processes import start
from asmtune.core.records.artifacts import Failure

_REAP_S: Final = 60.0  # the driver takes seconds to end a process whose GPU hangs
_TAIL_BYTES: Final = 1 << 16


class ChildGoneError(Exception):
    """The child ended, or hung up."""


@dataclass(frozen=True)
class Started:
    """How to start a child.

    Attributes:
        command: program and arguments.
        environment: all of its variables.
        files: descriptors that it inherits under their numbers.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    files: tuple[int, ...] = ()


class Child:
    """One process and all that it starts, in a group of their own.

    Nothing of what it prints reaches the terminal. It has to call
    `die_with_parent` itself.
    """

    def __init__(self, how: Started) -> None:
        self._log = tempfile.TemporaryFile(prefix="asmtune-")  # noqa: SIM115 - closed by kill
        self._lines: deque[bytes] = deque()
        self._rest = b""
        self._process = start(how.command, self._log, how.environment, how.files)

    def send(self, message: Mapping[str, Any]) -> None:
        """Sends a message to a child that reads.

        Raises:
            ChildGoneError: it does not.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise ChildGoneError from error

    def receive(self, timeout_s: float) -> dict[str, Any]:
        """The next message of the child.

        Raises:
            TimeoutError: none came in time.
            ChildGoneError: none will come.
        """
        end = time.monotonic() + timeout_s
        while not self._lines:
            self._read(max(0.0, end - time.monotonic()))
        message: dict[str, Any] = json.loads(self._lines.popleft())
        return message

    def _read(self, timeout_s: float) -> None:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(timeout_s):
                raise TimeoutError
        chunk = os.read(self._process.stdout.fileno(), 1 << 20)
        if not chunk:
            raise ChildGoneError
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        self._lines += lines

    def stop(self) -> None:
        """Ends the child; another thread may be about to hear of it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def kill(self, patience_s: float = 0.0) -> str:
        """Ends the child and all that it started; what it died of, in words.

        Args:
            patience_s: how long to wait for one that is about to end by itself.

        Raises:
            MeasureError: it does not end: its GPU needs to be reset.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_s)
        died_before = self._process.poll() is not None
        self.stop()
        try:
            code = self._process.wait(_REAP_S)
        except subprocess.TimeoutExpired as error:
            raise MeasureError(
                f"process {self._process.pid}, whose GPU hangs, did not end {_REAP_S:g} s after "
                "it was killed: look at nvidia-smi, and reset the GPU"
            ) from error
        cause = _cause(code) if died_before else "was ended"
        said = self._last_words()
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        return f"{cause}: {said}" if said else cause

    def _last_words(self) -> str:
        """The last line that it wrote on stderr."""
        if self._log.closed:
            return ""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _TAIL_BYTES))
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1].strip()[:300] if lines else ""


def _cause(code: int) -> str:
    return f"died with {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


_START_S: Final = 120.0  # importing PyTorch takes 2 s, and a minute on a cold network disk
_PATIENCE_S: Final = 5.0


@dataclass(frozen=True)
class ChildCrash:
    """How a child ended.

    Attributes:
        culprit: number of the config that ran; None where none did.
        failure: what that config is charged with.
    """

    culprit: int | None
    failure: Failure


class ChildSession:
    """Asks one child, until it dies.

    Attributes:
        device: name of its GPU, once it is open.
        fresh: whether it has not contested anything yet.

    Args:
        how: starts the child.
    """

    def __init__(self, how: Started) -> None:
        self.device = ""
        self.fresh = True
        self._child = Child(how)

    def open(self, opening: Mapping[str, Any], copy_s: float) -> ChildCrash | None:
        """Gives the child what it times; how it died, if it did.

        Args:
            opening: the request.
            copy_s: seconds that it may take for the arguments, beside those for its start.

        Raises:
            InputError: a function of the user's cannot be loaded there.
            MeasureError: it finds no GPU, or no room on it.
        """
        answer = self._answer(None, _START_S)
        if not isinstance(answer, ChildCrash):
            answer = self.ask(opening, _START_S + copy_s)
        if isinstance(answer, ChildCrash):
            return answer
        self.device = answer["device"]
        return None

    def ask(self, request: Mapping[str, Any], limit_s: float) -> dict[str, Any] | ChildCrash:
        """The answer to a request, or how the child died of it.

        Args:
            request: what is asked.
            limit_s: seconds for each step that it tells of.

        Raises:
            InputError: a function of the user's cannot be loaded there.
            MeasureError: the child cannot do what is asked of it, whatever the config.
        """
        try:
            self._child.send(request)
        except ChildGoneError:
            return self._gone(None)
        answer = self._answer(None, limit_s)
        if isinstance(answer, ChildCrash):
            return answer
        if "refused" in answer:
            kind = InputError if answer["input"] else MeasureError
            raise kind(answer["refused"])
        if "outcomes" in answer:
            self.fresh = False
        return answer

    def stop(self) -> None:
        """Ends the child; another thread may wait for its answer, and gets its death."""
        self._child.stop()

    def close(self) -> None:
        """Ends the child and gives its pipes back."""
        self._child.kill()

    def _answer(self, running: int | None, limit_s: float) -> dict[str, Any] | ChildCrash:
        while True:
            try:
                message = self._child.receive(limit_s)
            except TimeoutError:
                self._child.kill()
                detail = f"no end after {limit_s:.3g} s: the process that timed it was ended"
                return ChildCrash(running, Failure("launch", "timeout", detail))
            except ChildGoneError:
                return self._gone(running)
            if "lost" in message:
                self._child.kill()
                return ChildCrash(message["lost"], Failure("launch", "fault", message["detail"]))
            if "running" not in message:
                return message
            running = message["running"]

    def _gone(self, running: int | None) -> ChildCrash:
        detail = f"the process that timed it {self._child.kill(_PATIENCE_S)}"
        return ChildCrash(running, Failure("launch", "crash", detail))
