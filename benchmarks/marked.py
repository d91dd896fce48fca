"""Parts of documents that scripts write, between marks."""

from __future__ import annotations


def between(text: str, begin: str, end: str, content: str, name: str) -> str:
    """Replace a part of a document: from the end of one mark to the beginning of the other.

    Args:
        text: the document.
        begin: the mark before the part.
        end: the first mark after it.
        content: the part.
        name: name of the document.

    Raises:
        ValueError: a mark is missing.
    """
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{name} lacks {begin!r}, or {end!r} after it; put them back")
    return f"{before}{begin}{content}{end}{after}"
