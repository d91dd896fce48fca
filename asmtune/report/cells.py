"""Shared by tables: their form at every width, and values as text that holds no control codes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from asmtune.base.json_codec import printable
from asmtune.core.config import Config

_GAP: Final = 3
"""Columns of a terminal between two cells: a line and a space on either side."""

_TEXT_WIDTH: Final = 20
"""Texts are wrapped at words, but not to less than this."""

_BREAK: Final = re.compile(r" |(?<=_)(?=\w)")
"""A place where a heading may go on in the next line: a space, or between `BLOCK_` and `M`."""


class ReportTable:
    """A table that cuts no cell, however narrow the terminal is.

    If it is too wide, headings take a line a word, texts are wrapped, and columns are left out, the
    first of `spare` first. If that is not enough each row is a block of `heading: value`.
    Brackets in cells are text, never markup.

    Args:
        spare: headings of columns that may be left out, the least important first.
    """

    def __init__(self, title: str, *, spare: Sequence[str] = ()) -> None:
        self.title, self.caption = one_line(title), ""
        self._spare = spare
        self._columns: list[tuple[str, bool]] = []
        self._rows: list[tuple[list[str], str]] = []
        self._sections: set[int] = set()

    def add_column(self, heading: str, *, left: bool = False) -> None:
        """Add a column, of text if it is `left`, else of numbers."""
        self._columns.append((one_line(heading), left))

    def add_row(self, *cells: str, style: str | None = None) -> None:
        """Add a row of a cell for each column."""
        self._rows.append((list(map(one_line, cells)), style or ""))

    def add_section(self) -> None:
        """Draw a line below the last row."""
        self._sections.add(len(self._rows) - 1)

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Yield the widest form that fits."""
        if self.title:
            yield Text(self.title, "table.title")
        yield from self._body(options.max_width)
        if self.caption:
            yield Text(self.caption, "table.caption")

    def _body(self, width: int) -> Iterator[RenderableType]:
        headings = [heading for heading, _ in self._columns]
        spare = [headings.index(name) for name in self._spare if name in headings]
        for number in range(len(spare) + 1):
            hidden = spare[:number]
            shown = [place for place in range(len(headings)) if place not in hidden]
            if _span(map(self._least, shown)) <= width:
                yield self._table(shown, width)
                if hidden:
                    names = ", ".join(headings[place] for place in hidden)
                    needed = _span(map(self._width, range(len(headings))))
                    text = f"left out at {width} columns: {names}; {needed} columns show all"
                    yield Text(text, "dim")
                return
        yield from self._blocks()

    def _longest(self, place: int) -> int:
        return max((cell_len(cells[place]) for cells, _ in self._rows), default=0)

    def _width(self, place: int) -> int:
        return max(self._longest(place), cell_len(self._columns[place][0]))

    def _least(self, place: int) -> int:
        """Return the width of a column whose heading, and whose texts, are wrapped at words."""
        heading, is_text = self._columns[place]
        longest = self._longest(place)
        if is_text:
            words = [cell_len(word) for cells, _ in self._rows for word in cells[place].split()]
            longest = max([min(longest, _TEXT_WIDTH), *words])
        return max(longest, *map(cell_len, _BREAK.split(heading)))

    def _table(self, places: Sequence[int], width: int) -> Table:
        shown = [self._columns[place] for place in places]
        table = Table(show_edge=False, show_header=any(heading.strip() for heading, _ in shown))
        is_tight = _span(map(self._width, places)) > width
        left = width - _span(map(self._least, places))
        for place, (heading, is_text) in zip(places, shown, strict=True):
            least = self._least(place)
            more = min(left, self._width(place) - least) if is_text else 0
            left -= more
            text = _BREAK.sub("\n", heading) if is_tight else heading
            own = max(least + more, 1) if is_tight else None
            table.add_column(Text(text), justify="left" if is_text else "right", width=own)
        for number, (cells, style) in enumerate(self._rows):
            texts = [Text(cells[place]) for place in places]
            table.add_row(*texts, style=style, end_section=number in self._sections)
        return table

    def _blocks(self) -> Iterator[Text]:
        for number, (cells, style) in enumerate(self._rows):
            if number:
                yield Text()
            pairs = [
                f"{heading}: {cell}" if heading.strip() else cell
                for (heading, _), cell in zip(self._columns, cells, strict=True)
                if cell
            ]
            yield Text("  ".join(pairs), style, overflow="fold")


def _span(widths: Iterable[int]) -> int:
    """Return the width of a table from those of its columns."""
    listed = list(widths)
    return sum(listed) + _GAP * len(listed) - 1


def plain_table(
    title: str, headings: Sequence[str], left: int = 1, *, spare: Sequence[str] = ()
) -> ReportTable:
    """Make an empty table; the first `left` columns hold text, the others numbers.

    Columns of `spare` are left out where the terminal is too narrow, the first of them first.
    """
    table = ReportTable(title, spare=spare)
    for place, heading in enumerate(headings):
        table.add_column(heading, left=place < left)
    return table


def count(value: object) -> str:
    """Format a whole number or a name; "-" if it is not known."""
    return "-" if value is None else str(value)


class Column(NamedTuple):
    """A column of records that are JSON values: its heading, a place as `ending.timed`, a form.

    A page says its meaning beside the heading.
    """

    heading: str
    place: str
    form: Callable[[Any], str] = count
    left: bool = False
    meaning: str = ""


def rows_table(
    title: str,
    rows: Iterable[Mapping[str, Any]],
    columns: Sequence[Column],
    *,
    spare: Sequence[str] = (),
) -> ReportTable:
    """Tabulate records in the form that JSON and CSV write them, a row each."""
    table = ReportTable(title, spare=spare)
    for column in columns:
        table.add_column(column.heading, left=column.left)
    for row in rows:
        table.add_row(*(column.form(_value(row, column.place)) for column in columns))
    return table


def _value(row: Mapping[str, Any], place: str) -> Any:
    value: Any = row
    for name in place.split("."):
        value = None if value is None else value.get(name)
    return value


def cell(value: Any) -> str:
    """Format a value on one line."""
    # What a file brought in must not reach the terminal as control codes.
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return words(value)
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, list):
        return "; ".join(map(cell, value)) or "-"
    return "-" if value is None else printable(str(value))


def one_line(text: str) -> str:
    """Write text of a file in one line, without control codes."""
    return printable(" ".join(text.split()))


_FORMULA: Final = frozenset("=+-@\uff1d\uff0b\uff0d\uff20")
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|nan)|-")


@lru_cache(maxsize=4096)  # most cells of a long listing are alike
def spreadsheet_text(text: str) -> str:
    """Escape control codes of a text, and quote what a spreadsheet would run as a formula."""
    is_formula = text.lstrip()[:1] in _FORMULA and not _NUMBER.fullmatch(text)
    return ("'" if is_formula else "") + printable(text)


def words(values: Mapping[str, Any]) -> str:
    """Format a shape as `M=4096 N=4096`."""
    return printable(" ".join([f"{name}={value}" for name, value in values.items()]))


def heading(shape: Mapping[str, Any]) -> str:
    """Format a shape for a heading: without strides, unless it has nothing else."""
    sizes = {name: value for name, value in shape.items() if "stride" not in name}
    return words(sizes or shape)


def dtype_words(dtypes: Mapping[str, str]) -> str:
    """Format dtypes as `fp16/fp32`, each once."""
    return printable("/".join(dict.fromkeys(dtypes.values())))


def number(value: float | None, digits: int = 1) -> str:
    """Format a number; "-" if it is not known."""
    return "-" if value is None else f"{value:.{digits}f}"


def kib(value: float | None) -> str:
    """Format bytes as a whole number of KiB; "-" if it is not known."""
    return "-" if value is None else number(value / 1024, 0)


def share(value: float | None) -> str:
    """Format a share in percent; "-" if it is not known."""
    return "-" if value is None else f"{value:.1%}"


def changes(old: Config, new: Config) -> str:
    """Format where two configs differ: `BLOCK 64 -> 256, num_warps 2 -> 4`."""
    before, after = old.to_dict(), new.to_dict()
    changed = (
        f"{name} {before.get(name, 'none')} -> {after.get(name, 'none')}"
        for name in dict.fromkeys((*before, *after))
        if before.get(name) != after.get(name)
    )
    return printable(", ".join(changed))
