"""The `stacklevel` of warnings, so that they point at a line of the user's program."""

from __future__ import annotations

import sys


def user_stacklevel(*others: str) -> int:
    """Counts the frames from the caller's caller to the first outside asmtune.

    Args:
        others: prefixes of other modules' names to pass over as well.
    """
    frame, count = sys._getframe(1), 1
    inside = ("asmtune.", *others)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(inside):
        frame, count = frame.f_back, count + 1
    return count
