"""Tables and numbers of the pages, written from the result files or compared with them.

    python -m website.numbers [--check]

A table is between `<!-- table: NAME -->` and `<!-- end -->`, and is written by the function of
that name in `website.tables`. Figures belong in tables. If a sentence needs one, a mark after it
says where it is from and how it is written:
`0.967<!-- = replay scorers/learned/all/top1 .3f -->`.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Final

from website.blocks import PageError, pages
from website.files import number
from website.tables import TABLES

_TABLE: Final = re.compile(
    r"(?P<begin><!-- table: (?P<name>\w+) -->\n)(?P<body>.*?)(?P<end><!-- end -->)", re.DOTALL
)
_NUMBER: Final = re.compile(
    r"(?P<value>[\d.,]*\d%?)(?P<mark><!-- = (?P<file>\w+) (?P<path>[^\n]+?) (?P<form>[\w.,%]+) -->)"
)
_MARKS: Final = re.compile(r"<!-- (table: \w+|= [^>]*) -->")


def main() -> None:
    """Write all pages, or exit with 1 where a page differs from the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 on a difference"
    )
    given = parser.parse_args()
    stale = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        current = written(text, page)
        if current != text:
            stale.append(page.name)
            if not given.check:
                page.write_text(current, encoding="utf-8")
    print(f"{'stale' if given.check else 'written'}: {', '.join(stale) or 'none'}")
    sys.exit(given.check and bool(stale))


def written(text: str, page: Path) -> str:
    """Write every table and number of a page as the files have it.

    Raises:
        PageError: a mark is malformed, or names no table, file or number.
    """
    known = len(_TABLE.findall(text)) + len(_NUMBER.findall(text))
    if known != len(_MARKS.findall(text)):
        raise PageError(f"{page.name}: a table lacks its end, or a mark the number before it")
    try:
        text = _TABLE.sub(lambda m: f"{m['begin']}\n{TABLES[m['name']]()}\n\n{m['end']}", text)
        return _NUMBER.sub(lambda m: number(m["file"], m["path"], m["form"]) + m["mark"], text)
    except KeyError as error:
        raise PageError(f"{page.name}: {error.args[0]}") from error


if __name__ == "__main__":
    main()
