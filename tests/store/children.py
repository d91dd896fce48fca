"""Work in forked processes, for limits, permissions and kills that must not outlive a test."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from asmtune.base.errors import AsmtuneError

_MEMORY = Path("/dev/shm")


def memory_folder() -> TemporaryDirectory[str]:
    """A folder in memory where there is one: many small commits take a fraction of the time."""
    return TemporaryDirectory(dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None)


def start(work: Callable[[int], object]) -> tuple[int, int]:
    """Fork a process for `work(pipe)`; its id and the reading end of the pipe."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        return child, reader
    status = 1
    try:
        os.close(reader)
        if "torch" in sys.modules:
            # A fork has none of its parent's OpenMP threads, and would wait for them.
            sys.modules["torch"].set_num_threads(1)
        work(writer)
        status = 0
    except AsmtuneError as error:
        os.write(writer, f"{type(error).__name__}: {error}".encode())
    except BaseException:  # noqa: BLE001 (nothing may run on into the parent's tests)
        os.write(writer, traceback.format_exc().encode())
    finally:
        os._exit(status)


def finish(child: int, reader: int) -> str:
    """Return what the process wrote, once it has ended."""
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read().decode()
    os.waitpid(child, 0)
    return text


def in_child(work: Callable[[], object]) -> str:
    """The message of what `work` raises in a process of its own; empty where it does not."""
    return finish(*start(lambda _: work()))


def killed(work: Callable[[int], object], delay_s: float) -> str:
    """Run `work(pipe)` in a process until SIGKILL ends it after a delay; return what it wrote."""
    child, reader = start(work)
    time.sleep(delay_s)
    os.kill(child, signal.SIGKILL)
    return finish(child, reader)


def dies_at(event: float) -> Callable[[], int]:
    """End this process by SIGKILL at an event: the nth call or return of a function.

    How busy the machine is changes no event. Returns what counts the events so far.
    """
    seen = 0

    def count(*_: object) -> None:
        nonlocal seen
        seen += 1
        if seen >= event:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(count)
    return lambda: seen


def spread(count: int, seed: int) -> list[float]:
    """Draw one number from each of `count` equal parts of 0 to 1; return them in any order."""
    draw = random.Random(seed)
    numbers = [(part + draw.random()) / count for part in range(count)]
    draw.shuffle(numbers)
    return numbers


def delays(count: int, longest_s: float, seed: int) -> list[float]:
    """Moments to kill at: most of them early, where more happens; no part of it is left out."""
    return [longest_s * number**2 for number in spread(count, seed)]


def say(pipe: int, *words: object) -> None:
    """Write a line to the parent, whole or not at all."""
    os.write(pipe, (" ".join(map(str, words)) + "\n").encode())


def as_nobody(work: Callable[[], object]) -> str:
    """The message of what `work` raises in a process that may not write others' files."""

    def demoted() -> object:
        if os.getuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        return work()

    return in_child(demoted)
