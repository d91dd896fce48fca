"""Text of messages: short values, amounts with units, and hints at mistyped names."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from typing import Any


def shortened(text: str, limit: int = 60) -> str:
    """Cut a text that is longer than `limit` characters, and end it in three dots."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean BLOCK?` with the nearest known name; "" where none is near.

    Case does not matter where no name of the same case is near.
    """
    from difflib import get_close_matches  # most programs have no name to correct

    names = list(known)
    folded = {one.casefold(): one for one in names}
    near = get_close_matches(name, names, 1) or [
        folded[one] for one in get_close_matches(name.casefold(), folded, 1)
    ]
    return f"; did you mean {near[0]}?" if near else ""


def function_name(function: Any) -> str:
    """Return the full name of a user's function; empty for None."""
    if function is None:
        return ""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', '')}.{name}"


def user_stacklevel(*others: str) -> int:
    """Count the frames from the caller's caller to the first outside asmtune.

    Args:
        others: prefixes of other modules' names to pass over as well.
    """
    frame, count = sys._getframe(1), 1
    inside = ("asmtune.", *others)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(inside):
        frame, count = frame.f_back, count + 1
    return count


def amount(value: float, unit: str) -> str:
    """Format a number for a sentence: `1,024`, `8.6 GFLOP`, `96 KiB`."""
    if unit == "us":
        return f"{value:.1f} us"
    if unit == "B":
        return _scaled(value, 1024.0, ("B", "KiB", "MiB", "GiB", "TiB"))
    if unit == "FLOP":
        return _scaled(value, 1000.0, ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"))
    if value >= 1e6:
        return _scaled(value, 1000.0, ("", "thousand", "million", "billion", "trillion"))
    if value == math.floor(value) or value >= 100:
        return f"{value:,.0f}"
    # Small launches fill only thousandths of a wave.
    return f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.2g}"


def _scaled(value: float, step: float, names: tuple[str, ...]) -> str:
    place = 0
    while abs(value) >= step and place < len(names) - 1:
        value, place = value / step, place + 1
    digits = 0 if value == math.floor(value) and value < step else 1
    return f"{value:,.{digits}f} {names[place]}".rstrip()
