"""A context that another thread is in."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager


class HeldContext:
    """Enters a context in a thread of its own, and leaves it when it is told to."""

    def __init__(self, context: Callable[[], AbstractContextManager[None]]) -> None:
        inside, self._leave = threading.Event(), threading.Event()

        def hold() -> None:
            with context():
                inside.set()
                self._leave.wait(30)

        self._thread = threading.Thread(target=hold)
        self._thread.start()
        assert inside.wait(30)

    def leave(self) -> None:
        """Leave the context, and wait until the thread has."""
        self._leave.set()
        self._thread.join(30)
