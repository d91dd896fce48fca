"""What the pages say of measurements is what the result files say."""

from __future__ import annotations

from pathlib import Path

from website.blocks import pages
from website.files import TABLES
from website.numbers import written

PAGE = Path("page.md")


def test_pages_say_what_the_files_say() -> None:
    """No table of a page differs from its file: `python -m website.numbers` writes them."""
    stale = [page.name for page in pages() if written(page.read_text(), page) != page.read_text()]
    assert stale == []


def test_every_table_is_used() -> None:
    """A table that no page shows would be held to nothing."""
    text = "".join(page.read_text() for page in pages())
    assert [name for name in TABLES if f"<!-- table: {name} -->" not in text] == []


def test_tables_are_written() -> None:
    """What stood in a table's place goes."""
    made = written("a\n<!-- table: launches -->\nold\n<!-- end -->\nb", PAGE)
    assert "old" not in made
    assert "| `asm_autotune` | " in made
    assert made.startswith("a\n<!-- table")
    assert made.endswith("<!-- end -->\nb")
