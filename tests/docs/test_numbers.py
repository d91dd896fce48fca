"""What the pages say of measurements is what the result files say."""

from __future__ import annotations

from pathlib import Path

import pytest

from website.blocks import PageError, pages
from website.files import number
from website.numbers import written
from website.tables import TABLES

PAGE = Path("page.md")


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_pages_say_what_the_files_say(page: Path) -> None:
    """No table or number differs from its file: `python -m website.numbers` writes them."""
    text = page.read_text()
    assert written(text, page) == text, "run python -m website.numbers"


def test_numbers_are_marked() -> None:
    """Enough numbers are held to the files: the page of the prediction has some twenty."""
    text = next(page for page in pages() if page.name == "prediction.md").read_text()
    assert text.count("<!-- = ") >= 15
    assert text.count("<!-- table: ") >= 4


def test_every_table_is_used() -> None:
    """A table that no page shows would be held to nothing."""
    text = "".join(page.read_text() for page in pages())
    assert [name for name in TABLES if f"<!-- table: {name} -->" not in text] == []


def test_numbers_are_written() -> None:
    """A number that has drifted is put right, and what stands around it stays."""
    text = "at 0.5<!-- = large_space speed .3f --> of 9<!-- = large_space configs ,d -->, still 9"
    made = written(text, PAGE)
    assert made == (
        f"at {number('large_space', 'speed', '.3f')}<!-- = large_space speed .3f --> of "
        f"{number('large_space', 'configs', ',d')}<!-- = large_space configs ,d -->, still 9"
    )
    assert written(made, PAGE) == made
    assert "0.5<" not in made


def test_tables_are_written() -> None:
    """What stood in a table's place goes."""
    made = written("a\n<!-- table: launches -->\nold\n<!-- end -->\nb", PAGE)
    assert "old" not in made
    assert "| `@asm_autotune` | " in made
    assert made.startswith("a\n<!-- table")
    assert made.endswith("<!-- end -->\nb")


@pytest.mark.parametrize(
    "text",
    [
        "0.5<!-- = absent speed .3f -->",
        "0.5<!-- = large_space absent/deeper .3f -->",
        "0.5<!-- = large_space provenance .3f -->",
        "half<!-- = large_space speed .3f -->",
        "<!-- table: absent -->\n<!-- end -->",
        "<!-- table: launches -->\nno end",
    ],
)
def test_marks_that_name_nothing(text: str) -> None:
    """A mark of no file, key, number or table is refused with the page's name."""
    with pytest.raises(PageError, match=r"^page\.md"):
        written(text, PAGE)
