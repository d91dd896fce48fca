"""The standard streams of a command, and how it ends where they fail or Ctrl-C is pressed."""

from __future__ import annotations

import codecs
import errno
import io
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, Final, TextIO

WRITE_FAILED: Final = 1
INTERRUPTED: Final = 130
CLOSED_PIPE: Final = 141
"""128 + SIGPIPE, as a shell reports a program whose reader has gone."""

FALLBACK: Final = "asmtune-ascii"
"""Name of the error handler that writes in ASCII what an encoding lacks."""

_ASCII: Final = {
    **{chr(code): "+" for code in range(0x2500, 0x2580)},
    **dict.fromkeys("─╌┄┈╴╶", "-"),
    **dict.fromkeys("━═╍┅┉╸╺╼╾", "="),
    **dict.fromkeys("│┃║╎╏┆┇┊┋", "|"),
    **{chr(code): "*" for code in range(0x2800, 0x2900)},  # frames of a spinner
    "…": "...",
    "→": "->",
    "←": "<-",
    "≤": "<=",
    "≥": ">=",
    "±": "+-",
    "≈": "~",
    **dict.fromkeys("\u00b5\u03bc", "u"),
    **dict.fromkeys("\u00d7\u2715", "x"),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"),
    **dict.fromkeys("\u2018\u2019", "'"),
    **dict.fromkeys("\u201c\u201d", '"'),
    **dict.fromkeys("\u00b7\u2022", "*"),
}


def _to_ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    escaped = (_ASCII.get(c) or c.encode("ascii", "backslashreplace").decode() for c in missing)
    return "".join(escaped), error.end


codecs.register_error(FALLBACK, _to_ascii)


class StdoutError(Exception):
    """Stdout could not be written: closed, full, or without a reader.

    It is no OSError, so that neither click nor rich take it for an error of their own.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(error.strerror or str(error))
        self.errno = error.errno


class _Stdout(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise StdoutError(error) from error


class _Stderr(io.FileIO):
    def write(self, data: Any, /) -> int:
        with suppress(OSError):  # nobody can be told
            return super().write(data)
        return len(data)


def guarded(command: Callable[[], object]) -> object:
    """Run a command with streams that never end in a traceback; return its result.

    That is an exit code where stdout fails or Ctrl-C is pressed. A result that is none belongs
    to a program of the user's: it gets the streams and signals that Python gave, and descriptors
    that were closed are closed again.
    """
    given = sys.stdout, sys.stderr
    catches = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if catches:
        # Until all is imported nothing has begun, and a module may not survive an exception.
        signal.signal(signal.SIGINT, _leave)
    held = _hold_descriptors()
    sys.stdout, sys.stderr = _guard(sys.stdout, 1, _Stdout), _guard(sys.stderr, 2, _Stderr)
    try:
        outcome = command()
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("asmtune: interrupted", file=sys.stderr)  # noqa: T201
        outcome = INTERRUPTED
    except StdoutError as error:
        outcome = _stdout_failed(error)
    if not isinstance(outcome, int):
        sys.stdout, sys.stderr = given
        for number in held:
            os.close(number)
    if catches:
        own = signal.SIG_DFL if isinstance(outcome, int) else signal.default_int_handler
        signal.signal(signal.SIGINT, own)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    return outcome


def allow_interrupts() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again, once the commands are imported."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, _interrupt)
        signal.signal(signal.SIGALRM, _interrupt)


_IMPORT_S: Final = 5.0
"""Seconds that Ctrl-C waits at most for an import: torch takes 2 s, a user's file may never end."""

_pressed: list[float] = []


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, but not within an import; end the process at a second Ctrl-C.

    torch and Triton import modules from C++ that calls `terminate` where one raises.
    """
    if number == signal.SIGINT:
        if _pressed:
            _leave()
        _pressed.append(time.monotonic())
    if _imports(frame) and time.monotonic() - _pressed[0] < _IMPORT_S:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        return
    # An object whose `__init__` is cut short may not survive its `__del__`, as a ZipFile does not.
    sys.unraisablehook = _forget
    raise KeyboardInterrupt


def _forget(_: object) -> None:
    """Say nothing of what cannot be raised."""


def _imports(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None


def _leave(*_: object) -> None:
    with suppress(OSError):
        os.write(2, b"asmtune: interrupted\n")
    os._exit(INTERRUPTED)


def _stdout_failed(error: StdoutError) -> int:
    # What is still buffered goes nowhere, or Python would complain of it at exit.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
    if error.errno == errno.EPIPE:
        return CLOSED_PIPE
    print(f"asmtune: stdout: {error}: the output is not whole", file=sys.stderr)  # noqa: T201
    return WRITE_FAILED


def _hold_descriptors() -> list[int]:
    """Take the descriptors of closed streams, or the next file opened would be stdout."""
    held = []
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # Writing to a stdout that was closed fails as it would have failed without this.
            null = os.open(os.devnull, os.O_RDONLY if number == 1 else os.O_RDWR)
            os.dup2(null, number)
            if null != number:
                os.close(null)
            held.append(number)
    return held


def _guard(stream: TextIO | None, number: int, raw: type[io.FileIO]) -> TextIO:
    if stream is not None and not (
        isinstance(stream, io.TextIOWrapper) and stream in (sys.__stdout__, sys.__stderr__)
    ):
        return stream  # of a program that calls `main`
    encoding = getattr(stream, "encoding", None) or "utf-8"
    if os.environ.get("LC_ALL") in ("C", "POSIX") and not os.environ.get("PYTHONIOENCODING"):
        encoding = "ascii"  # Python takes UTF-8 there, which such a terminal may not show
    return io.TextIOWrapper(
        io.BufferedWriter(raw(number, "wb", closefd=False)),
        encoding,
        FALLBACK,
        line_buffering=number == 2 or os.isatty(number),
    )
