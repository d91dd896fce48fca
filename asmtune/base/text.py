"""Text of messages: values in one short line, and hints at names that were mistyped."""

from __future__ import annotations

from collections.abc import Iterable


def shortened(text: str, limit: int = 60) -> str:
    """Cuts a text that is longer than so many characters, and ends it in three dots."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns `; did you mean BLOCK?` with the nearest known name, or "" where none is near."""
    from difflib import get_close_matches  # most programs have no name to correct

    near = get_close_matches(name, list(known), 1)
    return f"; did you mean {near[0]}?" if near else ""
