"""Python's search for garbage in cycles, paused where it costs much and finds nothing."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_lock: Final = threading.Lock()
_depth = 0
_was_enabled = False


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
            _depth -= 1
            if _depth == 0 and _was_enabled:
                gc.enable()
