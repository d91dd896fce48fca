"""Child processes that exchange JSON lines with their parent and can always be killed.

`Child` is the parent's side: it starts a process in a group of its own, sends and receives
messages within a limit, and kills the whole group. `module_command` is what it starts: a module
that imports nothing from the working directory. `die_with_parent`, `own_stdout` and
`import_like_parent` are called by the child.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, TextIO

from asmtune.base.errors import AsmtuneError, MeasureError, StoreError

_REAP_S: Final = 60.0  # the driver takes seconds to end a process whose GPU hangs
_LAST_BYTES: Final = 1 << 16
_LINE_CHARACTERS: Final = 300
_LOOK_S: Final = 0.5  # between two looks at whether another process runs


class ChildGoneError(Exception):
    """The child ended or closed its pipes."""


@dataclass(frozen=True)
class ChildEnd:
    """Says how a child ended.

    Attributes:
        code: its exit code, negative for a signal; None if it ran until it was killed here.
        last_line: the last line it wrote on stderr, shortened; "" if it wrote none.
    """

    code: int | None
    last_line: str

    @property
    def signal_name(self) -> str | None:
        """Return the name of the signal it died of, or None."""
        return signal.Signals(-self.code).name if self.code is not None and self.code < 0 else None

    def __str__(self) -> str:
        cause = "was ended" if self.code is None else f"ended with exit code {self.code}"
        if self.signal_name is not None:
            cause = f"died with {self.signal_name}"
        return f"{cause}: {self.last_line}" if self.last_line else cause


@contextlib.contextmanager
def temporary_files() -> Iterator[None]:
    """Turn an `OSError` of making temporary files into one line that says what to do.

    Raises:
        StoreError: in the place of an `OSError`.
    """
    try:
        yield
    except AsmtuneError:
        raise
    except OSError as error:
        folder = f"temporary folder {tempfile.tempdir or ''}".strip()
        raise StoreError(
            f"{folder}: {error.strerror or error}; free some space there and in /dev/shm, or set "
            "TMPDIR to another folder"
        ) from error


class Child:
    """A process and everything it starts, in a process group of their own.

    Its stdin and stdout carry the messages. Its stderr goes to a temporary file, so nothing
    reaches the terminal. The child has to call `die_with_parent` itself.

    Args:
        command: program and arguments.
        environment: all of its variables; this process's if None.
        files: descriptors that it inherits under their numbers.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        files: Sequence[int] = (),
    ) -> None:
        with temporary_files():
            self._log: IO[bytes] = tempfile.TemporaryFile(prefix="asmtune-")  # noqa: SIM115
        self._lines: deque[bytes] = deque()
        self._partial_line = b""
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=None if environment is None else dict(environment),
            pass_fds=tuple(files),
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """Return its process id, which is its group's too."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Return whether it has not ended yet."""
        return self._process.poll() is None

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message; blocks until the child reads it.

        Raises:
            ChildGoneError: the child no longer reads.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise ChildGoneError from error

    def receive(self, timeout_s: float) -> dict[str, Any]:
        """Return the child's next message. After a `TimeoutError` it can be called again.

        Raises:
            TimeoutError: no message came in time.
            ChildGoneError: no message will come.
            ValueError: a line is no message; the next one may be.
        """
        end = time.monotonic() + timeout_s
        while not self._lines:
            self._read(max(0.0, end - time.monotonic()))
        message = json.loads(self._lines.popleft())
        if not isinstance(message, dict):
            raise ValueError(message)  # noqa: TRY004 - as for a line that is no JSON
        return message

    def _read(self, timeout_s: float) -> None:
        assert self._process.stdout is not None
        end = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            was_running = self.is_running
            while not selector.select(min(max(0.0, end - time.monotonic()), _LOOK_S)):
                if not was_running:  # another process holds its end of the pipe open
                    raise ChildGoneError
                if time.monotonic() >= end:
                    raise TimeoutError
                was_running = self.is_running
        chunk = os.read(self._process.stdout.fileno(), 1 << 20)
        if not chunk:
            raise ChildGoneError
        *lines, self._partial_line = (self._partial_line + chunk).split(b"\n")
        self._lines += lines

    def stop(self) -> None:
        """Send SIGKILL to the group and return; another thread may be waiting in `receive`."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def kill(self, patience_s: float = 0.0) -> ChildEnd:
        """End the child and everything it started, and close its pipes.

        Args:
            patience_s: seconds to wait for a child that is about to end by itself.

        Raises:
            MeasureError: it does not end: its GPU needs to be reset.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_s)
        ended_itself = not self.is_running
        self.stop()
        try:
            code = self._process.wait(_REAP_S)
        except subprocess.TimeoutExpired as error:
            raise MeasureError(
                f"process {self.pid}, whose GPU hangs, did not end {_REAP_S:g} s after "
                "it was killed: look at nvidia-smi, and reset the GPU"
            ) from error
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _LAST_BYTES))
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        last_line = lines[-1].strip()[:_LINE_CHARACTERS] if lines else ""
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        return ChildEnd(code if ended_itself else None, last_line)


_RUN_MODULE: Final = """\
import importlib.util, runpy, sys
spec = importlib.util.spec_from_file_location("asmtune", sys.argv.pop(1))
sys.modules["asmtune"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["asmtune"])
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


def module_command(module: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs a module of this asmtune in another process.

    Python's option -P keeps the working directory off its path: a `json.py` there would be
    executed. asmtune is loaded from its own folder, wherever this process has it from.
    """
    package = Path(__file__).parents[1] / "__init__.py"
    return (sys.executable, "-P", "-c", _RUN_MODULE, str(package), module, *arguments)


def import_like_parent(path: Sequence[str]) -> None:
    """Import modules by the parent's `sys.path` first; only code of the user's needs this."""
    sys.path[:] = [*path, *(entry for entry in sys.path if entry not in path)]


def die_with_parent() -> None:
    """Kill this process, and its group if it leads one, when its parent ends, however it ends.

    A thread waits for that end. The signal that Linux can send then (PR_SET_PDEATHSIG) would reach
    this process alone and not what it has started; it also comes when the parent's thread ends.
    """
    # A parent that ended before this line has hung up at the other end of stdin.
    hung_up = select.poll()
    hung_up.register(0, 0)
    known = os.getppid()

    def watch() -> None:
        if not hung_up.poll(0):
            _wait_for_end_of_parent(known)
        leads = os.getpgrp() == os.getpid()
        os.kill(-os.getpid() if leads else os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="asmtune-parent", daemon=True).start()


def _wait_for_end_of_parent(parent: int) -> None:
    with contextlib.suppress(OSError):  # Linux before 5.3 has no such descriptors
        end = select.poll()
        end.register(descriptor := os.pidfd_open(parent), select.POLLIN)
        if os.getppid() == parent:
            end.poll()
        os.close(descriptor)
    while os.getppid() == parent:
        time.sleep(_LOOK_S)


def own_stdout() -> TextIO:
    """Return this process's stdout for answers; whatever else prints there goes nowhere."""
    out = os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    return out
