"""Tables of the pages, written from the result files.

    python -m website.numbers

A table is between `<!-- table: NAME -->` and `<!-- end -->`, and is written by the function of
that name in `website.tables`. Figures belong in tables.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from website import tables  # noqa: F401 - lists the tables
from website.blocks import PageError, pages
from website.files import TABLES

_TABLE: Final = re.compile(
    r"(?P<begin><!-- table: (?P<name>\w+) -->\n)(?P<body>.*?)(?P<end><!-- end -->)", re.DOTALL
)
_MARKS: Final = re.compile(r"<!-- table: \w+ -->")


def main() -> None:
    """Write all pages."""
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (current := written(text, page)) != text:
            page.write_text(current, encoding="utf-8")
            print(f"written: {page.name}")


def written(text: str, page: Path) -> str:
    """Write every table of a page as the files have it.

    Raises:
        PageError: a mark names no table, or a table has no end.
    """
    if len(_TABLE.findall(text)) != len(_MARKS.findall(text)):
        raise PageError(f"{page.name}: a table lacks its end")
    try:
        return _TABLE.sub(lambda m: f"{m['begin']}\n{TABLES[m['name']]()}\n\n{m['end']}", text)
    except KeyError as error:
        raise PageError(f"{page.name}: {error.args[0]}") from error


if __name__ == "__main__":
    main()
