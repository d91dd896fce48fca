"""Shared by tables: their form, and values as text that holds no control codes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table

from asmtune.base.json_codec import printable
from asmtune.core.config import Config


def plain_table(title: str, headings: Sequence[str], left: int = 1) -> Table:
    """Makes an empty table; the first `left` columns hold text, the others numbers."""
    table = Table(title=title, title_justify="left", show_edge=False)
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="left" if place < left else "right")
    return table


def one_line(text: str) -> str:
    """Writes text of a file in one line, without control codes."""
    return printable(" ".join(text.split()))


def words(values: Mapping[str, Any]) -> str:
    """Formats a shape as `M=4096 N=4096`."""
    return printable(" ".join(f"{name}={value}" for name, value in values.items()))


def dtype_words(dtypes: Mapping[str, str]) -> str:
    """Formats dtypes as `fp16/fp32`, each once."""
    return printable("/".join(dict.fromkeys(dtypes.values())))


def number(value: float | None, digits: int = 1) -> str:
    """Formats a number; "-" if it is not known."""
    return "-" if value is None else f"{value:.{digits}f}"


def count(value: int | None) -> str:
    """Formats a whole number; "-" if it is not known."""
    return "-" if value is None else str(value)


def changes(old: Config, new: Config, among: Iterable[str] | None = None) -> str:
    """Formats where two configs differ: `BLOCK 64 -> 256, num_warps 2 -> 4`."""
    before, after = old.to_dict(), new.to_dict()
    names = dict.fromkeys((*before, *after)) if among is None else among
    changed = (
        f"{name} {before.get(name, 'none')} -> {after.get(name, 'none')}"
        for name in names
        if before.get(name) != after.get(name)
    )
    return printable(", ".join(changed))
