"""Short turns for Python's threads while one of them feeds a GPU."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_SWITCH_S: Final = 2e-5

_lock: Final = threading.Lock()
_depth = 0
_usual_interval_s = 0.0


@contextmanager
def short_switch_interval() -> Iterator[None]:
    """Python's threads take turns every 20 us meanwhile, not every 5 ms.

    Each call into CUDA gives up the interpreter; where another thread is busy, it
    comes back only after that thread's turn. Nests, over threads as well.
    """
    global _depth, _usual_interval_s
    with _lock:
        if _depth == 0:
            _usual_interval_s = sys.getswitchinterval()
            sys.setswitchinterval(_SWITCH_S)
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                sys.setswitchinterval(_usual_interval_s)
