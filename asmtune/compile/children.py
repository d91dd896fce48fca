"""This process's sandboxes: one for each thread that compiles at once, kept between compiles."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from asmtune.compile.sandbox import Sandbox

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
