"""Work in forked processes, for limits, permissions and kills that must not outlive a test."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable

from asmtune.errors import AsmtuneError


def start(work: Callable[[int], object]) -> tuple[int, int]:
    """Forks a process for `work(pipe)`; its id and the reading end of the pipe."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        return child, reader
    status = 1
    try:
        os.close(reader)
        work(writer)
        status = 0
    except AsmtuneError as error:
        os.write(writer, f"{type(error).__name__}: {error}".encode())
    except BaseException:  # noqa: BLE001 (nothing may run on into the parent's tests)
        os.write(writer, traceback.format_exc().encode())
    finally:
        os._exit(status)


def finish(child: int, reader: int) -> str:
    """What the process wrote, once it has ended."""
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read().decode()
    os.waitpid(child, 0)
    return text


def in_child(work: Callable[[], object]) -> str:
    """The message of what `work` raises in a process of its own; empty where it does not."""
    return finish(*start(lambda _: work()))
