"""Self-contained HTML tables: no script, no network, the colours of the surrounding page.

Text keeps the notebook's colour and lines are half transparent, so that one style fits light
and dark themes. All text is escaped.
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

_LINE: Final = "1px solid rgba(128, 128, 128, 0.45)"

_STYLE: Final = f"""<style>
.asmtune-record {{ color: inherit; line-height: 1.4; overflow-x: auto; }}
.asmtune-record table {{ border-collapse: collapse; margin: 0.6em 0; }}
.asmtune-record caption {{ text-align: left; font-weight: 600; padding: 0.2em 0; }}
.asmtune-record th, .asmtune-record td {{ padding: 0.15em 0.7em; text-align: right;
  vertical-align: top; border-bottom: {_LINE}; }}
.asmtune-record .word {{ text-align: left; }}
</style>"""


@dataclass(frozen=True)
class HtmlTable:
    """A table of text.

    Attributes:
        caption: its title.
        headings: the columns' titles.
        rows: cells in the columns' order.
        words: positions of the text columns; the others hold numbers.
    """

    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: frozenset[int] = frozenset()


def document(title: str, lines: Iterable[str], tables: Iterable[HtmlTable]) -> str:
    """Build an HTML fragment for a notebook's output: a title, lines of text, tables."""
    parts = [_STYLE, f"<div><strong>{escaped(title)}</strong></div>"]
    parts += [f"<div>{escaped(line)}</div>" for line in lines]
    parts += [_table(table) for table in tables if table.rows]
    return f'<div class="asmtune-record">{"".join(parts)}</div>'


def page(title: str, body: str) -> str:
    """Build a page of its own around HTML."""
    style = "body{font-family:sans-serif;color-scheme:light dark;margin:2em}svg{max-width:100%}"
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{escaped(title)}'
        f"</title><style>{style}</style></head><body>{body}</body></html>"
    )


def escaped(text: str) -> str:
    """Escape text for HTML; characters that a browser cannot show become U+FFFD."""
    return html.escape("".join(c if _shown(c) else "\N{REPLACEMENT CHARACTER}" for c in text))


def _shown(character: str) -> bool:
    """Return False for control codes and lone surrogates, which a browser does not show."""
    return character in "\t\n" or unicodedata.category(character) not in ("Cc", "Cs")


def _table(table: HtmlTable) -> str:
    classes = ['class="word"' if i in table.words else "" for i in range(len(table.headings))]
    heads = (f'<th scope="col" {c}>{escaped(h)}</th>' for c, h in _pairs(classes, table.headings))
    parts = [f"<table><caption>{escaped(table.caption)}</caption>"]
    parts.append(f"<thead><tr>{''.join(heads)}</tr></thead><tbody>")
    for row in table.rows:
        cells = (f"<td {c}>{escaped(cell)}</td>" for c, cell in _pairs(classes, row))
        parts.append(f"<tr>{''.join(cells)}</tr>")
    return "".join((*parts, "</tbody></table>"))


def _pairs(classes: Sequence[str], cells: Sequence[str]) -> Iterable[tuple[str, str]]:
    return zip(classes, cells, strict=True)
