"""Where a warning points: the line of the program, not of a library between it and the warning."""

from __future__ import annotations

import sys


def frames_inside(*others: str) -> int:
    """How many frames the caller's caller is from the first that is not asmtune's.

    Args:
        others: beginnings of the names of modules that are passed over as well.
    """
    frame, count = sys._getframe(1), 1
    inside = ("asmtune.", *others)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(inside):
        frame, count = frame.f_back, count + 1
    return count
