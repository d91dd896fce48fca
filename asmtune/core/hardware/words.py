"""Names in messages: how they compare, and how they are shown."""

from __future__ import annotations

from collections.abc import Iterable

from asmtune.base.text import shortened


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint at the nearest known name, or nothing."""
    from difflib import get_close_matches

    by_plain = {plain(candidate): candidate for candidate in known}
    near = get_close_matches(plain(name), by_plain, n=1)
    return f"; did you mean {by_plain[near[0]]!r}?" if near else ""


def plain(name: str) -> str:
    """A name without regard to case and runs of spaces."""
    return " ".join(name.casefold().split())


def short(value: object) -> str:
    """A value as it would be typed, cut to 80 characters."""
    return shortened(repr(value), 80)


def label(name: str) -> str:
    """A field's name for a message of one line: a key of the user's may hold line breaks."""
    return name if name.isprintable() else short(name)
