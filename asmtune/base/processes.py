"""Child processes that end with their parent, and write answers to a private stdout."""

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
    """Starts a child in its own process group, so that it can be killed with its children.

    Linux ends a child that called `die_with_parent` when the thread that started it ends. The
    calling thread may end before the process does, so a thread that never ends starts children.

    Args:
        command: program and arguments.
        log: file for its stderr.
        environment: all of its environment variables; None for this process's.
        files: file descriptors that it inherits, under the same numbers.
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
    """Returns the thread that starts children."""
    return ThreadPoolExecutor(1, "asmtune-starter")


def die_with_parent() -> None:
    """Makes Linux kill this process when the thread that started it ends, for any reason."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def own_stdout() -> TextIO:
    """Returns this process's stdout for answers, and sends all other prints to /dev/null."""
    out = os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    return out
