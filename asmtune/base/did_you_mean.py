"""What a name that is not known may have been meant for."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean BLOCK?` of the nearest known name; nothing where none is near."""
    from difflib import get_close_matches  # most programs have no name to correct

    near = get_close_matches(name, list(known), 1)
    return f"; did you mean {near[0]}?" if near else ""
