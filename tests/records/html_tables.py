"""HTML of a record, read back as a browser would."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = frozenset({"br", "hr", "img", "input", "meta", "link"})


@dataclass
class ReadTable:
    """A table as it stands: caption, rows of cells, and which rows stand out."""

    caption: str = ""
    rows: list[list[str]] = field(default_factory=list)
    chosen: list[int] = field(default_factory=list)


class Page(HTMLParser):
    """Text, tables and tags of a fragment; fails where tags do not close in their order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tables: list[ReadTable] = []
        self.lines: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.style = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open a tag."""
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "table":
            self.tables.append(ReadTable())
        elif tag == "tr":
            table = self.tables[-1]
            if ("class", "chosen") in attrs:
                table.chosen.append(len(table.rows))
            table.rows.append([])
        elif tag in ("td", "th"):
            self.tables[-1].rows[-1].append("")
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close the tag that was opened last."""
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Text goes to where it stands."""
        inside = self._open[-1] if self._open else ""
        if inside == "style":
            self.style += data
        elif inside == "caption":
            self.tables[-1].caption += data
        elif inside in ("td", "th"):
            self.tables[-1].rows[-1][-1] += data
        elif data.strip():
            self.lines.append(data)

    def table(self, caption: str) -> ReadTable:
        """The table whose caption begins so."""
        return next(table for table in self.tables if table.caption.startswith(caption))


def html_of(record: object) -> Page:
    """Render a record as a notebook would."""
    return Page(record._repr_html_())  # type: ignore[attr-defined]
