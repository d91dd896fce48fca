"""What became of each key that this process met: told to whoever listens, else to nobody."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Met:
    """A key that was met for the first time.

    Attributes:
        kernel: its dotted name.
        how: a `misses.Choice`'s: "tuned", "known", "predicted" and the others.
        compiled, timed: configs, while it was tuned.
        seconds: wall clock, from the first launch of the key to its config.
    """

    kernel: str
    how: str
    compiled: int = 0
    timed: int = 0
    seconds: float = 0.0


# Replaced whole, so that `tell` reads it without the lock; a launch of a known key never tells.
_listeners: tuple[Callable[[Met], None], ...] = ()
_lock = threading.Lock()


def tell(met: Met) -> None:
    """Tells all listeners; called in the thread that launches or tunes."""
    for listener in _listeners:
        listener(met)


@contextlib.contextmanager
def listening(listener: Callable[[Met], None]) -> Iterator[None]:
    """Tells a listener of every key met, in the whole process, until the context is left."""
    global _listeners
    with _lock:
        _listeners = (*_listeners, listener)
    try:
        yield
    finally:
        with _lock:
            held = list(_listeners)
            held.remove(listener)
            _listeners = tuple(held)
