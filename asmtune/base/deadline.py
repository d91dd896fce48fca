"""Limits on the time of Python code of this process, and pauses of its garbage collector."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn


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


@contextmanager
def alarm(seconds: float, error: type[BaseException]) -> Iterator[None]:
    """Raise an error as `deadline` does; in the main thread also where it sleeps or waits.

    There it is SIGALRM, and comes again each second in case that the code catches it.
    """
    if threading.current_thread() is not threading.main_thread():
        with deadline(seconds, error):
            yield
        return

    def fire(*_: Any) -> NoReturn:
        raise error

    handler = signal.signal(signal.SIGALRM, fire)
    before = signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *before)
        signal.signal(signal.SIGALRM, handler)


_lock = threading.Lock()
_depth = 0
_was_enabled = False


def _resume_collection() -> None:
    """Have a forked process search again: the threads that paused the other one are not in it."""
    global _lock, _depth
    if _depth and _was_enabled:
        gc.enable()
    _lock, _depth = threading.Lock(), 0


os.register_at_fork(after_in_child=_resume_collection)


@contextmanager
def paused_collection() -> Iterator[None]:
    """Search for no garbage in cycles within the context, which should take a second at most.

    Parsed IR is a hundred thousand objects, none of them garbage. With PyTorch and Triton imported,
    a quarter to a half of the time in which it is made was spent on searching. Contexts may nest,
    also over threads.
    """
    global _depth, _was_enabled
    with _lock:
        if _depth == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth = max(0, _depth - 1)  # 0 already in a process that was forked within
            if _depth == 0 and _was_enabled:
                gc.enable()
