"""Child processes: they end with whoever started them, and answer on a stdout of their own."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import IO, TextIO


def start(
    command: Sequence[str],
    log: IO[bytes],
    environment: Mapping[str, str] | None = None,
    files: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Starts a child in a group of its own, that can be killed with all that it starts.

    Linux ends a child that calls `die_with_parent` when the thread that started it ends. The
    one that asks may end before the process does; the one that starts does not.

    Args:
        command: program and arguments.
        log: takes its stderr.
        environment: all of its variables; this process's where it is None.
        files: descriptors that it inherits under their numbers.
    """

    def popen() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=None if environment is None else dict(environment),
            pass_fds=tuple(files),
            start_new_session=True,
        )

    return _starter(os.getpid()).submit(popen).result()


@cache
def _starter(pid: int) -> ThreadPoolExecutor:  # noqa: ARG001 - a fork has threads of its own
    """The thread that starts children."""
    return ThreadPoolExecutor(1, "asmtune-starter")


def die_with_parent() -> None:
    """Linux ends this process when the thread that started it ends, however it ends."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def own_stdout() -> TextIO:
    """This process's stdout, for answers; what anything else prints there goes nowhere."""
    out = os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    return out
