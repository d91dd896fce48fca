"""The command line: commands parse, call the library, and render."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import warnings
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asmtune.cli.run import UserProgram

WRITE_FAILED: Final = 1
INTERRUPTED: Final = 130
CLOSED_PIPE: Final = 141
"""128 + SIGPIPE, as a shell reports a program whose reader has gone."""


def main() -> None:
    """Run `asmtune`; exit with 0, 1 for findings, 2 for bad input, with one line on stderr.

    Exits 3 where nothing here can run it, for lack of a GPU or of a compiler; 130 after Ctrl-C,
    141 where the reader of stdout has gone, 1 where stdout cannot be written. `asmtune run` ends as
    the program does that it was given.
    """
    catches = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if catches:
        signal.signal(signal.SIGINT, _interrupt)
    is_closed = sys.stdout is None
    # A file that is opened would take the place of a stream; a program of `run` inherits neither.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - till the end
    try:
        outcome = _run()
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("asmtune: interrupted", file=sys.stderr)  # noqa: T201
        outcome = INTERRUPTED
    except OSError as error:
        if error.filename is not None:  # no stream's
            raise
        outcome = _stdout_failed(error)
    if isinstance(outcome, int):
        if is_closed and outcome == 0:
            outcome = _stdout_failed(OSError(errno.EBADF, os.strerror(errno.EBADF)))
        if catches:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        sys.exit(outcome)
    outcome.execute()


def _run() -> int | UserProgram:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an encoding may lack the lines of tables
    with warnings.catch_warnings():
        # Triton's advice on its own defaults is not for who runs a command of asmtune's.
        warnings.filterwarnings("ignore", module=r"triton\.")
        warnings.showwarning = _show
        from asmtune.cli.app import run

        return run(sys.argv[1:])


def _show(message: Warning | str, *_: object, **__: object) -> None:
    from asmtune.cli.output import print_line

    print_line(f"asmtune: {' '.join(str(message).split())}", err=True)


def _interrupt(_: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt once; end the process within an import, or at a second Ctrl-C.

    torch and Triton import modules from C++ that calls `terminate` where one raises.
    """
    signal.signal(signal.SIGINT, _leave)
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            _leave()
        frame = frame.f_back
    # An object whose `__init__` is cut short may not survive its `__del__`, as a ZipFile does not.
    sys.unraisablehook = lambda _: None
    raise KeyboardInterrupt


def _leave(*_: object) -> None:
    os.write(2, b"asmtune: interrupted\n")
    os._exit(INTERRUPTED)


def _stdout_failed(error: OSError) -> int:
    # What is still buffered goes nowhere, or Python would complain of it at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if error.errno == errno.EPIPE:
        return CLOSED_PIPE
    print(f"asmtune: stdout: {error.strerror}: the output is not whole", file=sys.stderr)  # noqa: T201
    return WRITE_FAILED
