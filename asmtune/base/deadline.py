"""Limits on the time of Python code of this process, and settings that contexts change for it."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

T = TypeVar("T")


@contextmanager
def deadline(seconds: float, error: type[BaseException]) -> Iterator[None]:
    """Raise an error in Python code of this thread after some seconds, without signals.

    It comes between two steps of Python: a native function that blocks is not ended.
    """
    thread, lock, done = threading.get_ident(), threading.Lock(), False

    def fire() -> None:
        with lock:
            if not done:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(thread), ctypes.py_object(error)
                )

    timer = threading.Timer(seconds, fire)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        with lock:
            done = True
        timer.cancel()


class ProcessSetting(Generic[T]):
    """A setting of the whole process that contexts change: also nested, and over threads.

    The last context that ends puts the setting back, whichever began first, unless somebody else
    has set it meanwhile. A process that is forked within has it as it was before.

    Args:
        read: returns the setting.
        write: changes it.
        within: its value in the contexts.
    """

    def __init__(self, read: Callable[[], T], write: Callable[[T], object], within: T) -> None:
        self._read, self._write, self._within = read, write, within
        self._lock, self._depth, self._suspensions = threading.Lock(), 0, 0
        self._before: T = within
        self._changed: T | None = None  # as it reads once it is changed, which may be rounded
        os.register_at_fork(after_in_child=self._resume)

    @contextmanager
    def changed(self, *, resuming: bool = False) -> Iterator[None]:
        """Change the setting within the context; `resuming` if it is inside one of `suspended`."""
        self._count(1, -resuming)
        try:
            yield
        finally:
            self._count(-1, resuming)

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Put the setting back within the context, whoever changes it."""
        self._count(0, 1)
        try:
            yield
        finally:
            self._count(0, -1)

    def before(self) -> T:
        """Return the setting as it is, or as it was before the contexts."""
        with self._lock:
            return self._read() if self._changed is None else self._before

    def _count(self, depth: int, suspensions: int) -> None:
        with self._lock:
            # 0 already in a process that was forked within.
            self._depth = max(0, self._depth + depth)
            self._suspensions = max(0, self._suspensions + suspensions)
            if not self._depth or self._suspensions:
                self._put_back()
            elif self._changed is None:
                self._before = self._read()
                if self._before != self._within:
                    self._write(self._within)
                    self._changed = self._read()

    def _put_back(self) -> None:
        if self._changed is not None and self._read() == self._changed:
            self._write(self._before)
        self._changed = None

    def _resume(self) -> None:
        """Put the setting back in a forked process, where the other threads never end their own."""
        self._put_back()
        self._lock, self._depth, self._suspensions = threading.Lock(), 0, 0


_collection: Final = ProcessSetting(
    gc.isenabled, lambda enabled: gc.enable() if enabled else gc.disable(), within=False
)


@contextmanager
def paused_collection() -> Iterator[None]:
    """Pause the garbage collector while trees of small objects are made.

    Parsed IR is a hundred thousand objects, none of them garbage. With PyTorch and Triton imported,
    a quarter to a half of the time in which it is made was spent on searching. Contexts may nest,
    also over threads.
    """
    with _collection.changed():
        yield
