"""Text of messages: values in one short line, and hints at names that were mistyped."""

from __future__ import annotations

import sys
from collections.abc import Iterable


def shortened(text: str, limit: int = 60) -> str:
    """Cuts a text that is longer than so many characters, and ends it in three dots."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns `; did you mean BLOCK?` with the nearest known name, or "" where none is near."""
    from difflib import get_close_matches  # most programs have no name to correct

    near = get_close_matches(name, list(known), 1)
    return f"; did you mean {near[0]}?" if near else ""


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
