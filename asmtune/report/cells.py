"""Shared by tables: their form at every width, and values as text that holds no control codes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from asmtune.base.json_codec import printable
from asmtune.core.config import Config

_GAP: Final = 3
"""Columns of a terminal between two cells: a line and a space on either side."""

_TEXT_WIDTH: Final = 20
"""Texts are wrapped at words, but not to less than this."""

_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
"""A part of an axis's name: two of `BLOCK_M`, `numWarps` and `BLOCK2`."""

_PIECE: Final = re.compile(r"(?<= )(?! )|(?<=,)(?=[^\d\s])")
"""Where a text may go on in the next line: after a space, and in `M=1,N=2`, not in `1,024`."""


@dataclass(frozen=True)
class _Column:
    heading: str
    justify: Literal["left", "right"]
    is_axis: bool


class ReportTable:
    """A table that cuts no cell, however narrow the terminal is.

    Where it is too wide it wraps texts at words, shortens the names of axes and explains them in
    a legend, and leaves out columns, the first of `spare` first. If that is not enough each row
    is a block of `heading: value`. Brackets in cells are text, never markup.

    Args:
        spare: headings of columns that may be left out, the least important first.
        instead: tables to show where this one would have to leave out a column.
    """

    def __init__(
        self, title: str, *, spare: Sequence[str] = (), instead: Sequence[RenderableType] = ()
    ) -> None:
        self.title, self.caption = one_line(title), ""
        self._spare, self._instead = spare, instead
        self._columns: list[_Column] = []
        self._rows: list[tuple[list[str], str]] = []
        self._sections: set[int] = set()

    def add_column(self, heading: str, *, left: bool = False, axis: bool = False) -> None:
        """Add a column; `left` for text, `axis` for a name that may be shortened."""
        self._columns.append(_Column(one_line(heading), "left" if left else "right", axis))

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
        names = [column.heading for column in self._columns]
        spare = [name for name in self._spare if name in names]
        for left_out in range(len(spare) + 1):
            hidden = spare[:left_out]
            for headings in (names, self._short_headings()):
                widths = self._widths(width, headings, hidden)
                if widths is not None:
                    yield self._table(widths, headings)
                    yield from self._legend(widths, headings, hidden, width)
                    return
            if self._instead:
                yield from self._instead
                return
        yield from self._blocks(width)

    def _short_headings(self) -> list[str]:
        known = {column.heading for column in self._columns}
        headings = []
        for column in self._columns:
            short = _short_name(column.heading, known) if column.is_axis else column.heading
            known.add(short)
            headings.append(short)
        return headings

    def _widths(
        self, width: int, headings: Sequence[str], hidden: Collection[str] = ()
    ) -> dict[int, int] | None:
        """Return the width of each shown column, by its place; None if they do not fit."""
        widths, least = {}, {}
        for place, (column, heading) in enumerate(zip(self._columns, headings, strict=True)):
            if column.heading in hidden:
                continue
            cells = [cells[place] for cells, _ in self._rows]
            longest = max(map(cell_len, cells), default=0)
            words = [part.rstrip() for text in (heading, *cells) for part in _PIECE.split(text)]
            widths[place] = max(longest, cell_len(heading))
            least[place] = max(*map(cell_len, words), min(longest, _TEXT_WIDTH), 1)
        excess = _span(widths) - width
        if excess > sum(widths.values()) - sum(least.values()):
            return None
        for _ in range(excess):
            widest = max((p for p in widths if widths[p] > least[p]), key=lambda p: widths[p])
            widths[widest] -= 1
        return widths

    def _table(self, widths: Mapping[int, int], headings: Sequence[str]) -> Table:
        table = Table(show_edge=False, show_header=any(map(str.strip, headings)))
        for place, width in widths.items():
            justify = self._columns[place].justify
            heading = "\n".join(_lines(headings[place], width))
            table.add_column(Text(heading), justify=justify, width=width, no_wrap=True)
        for number, (cells, style) in enumerate(self._rows):
            shown = [Text("\n".join(_lines(cells[p], width))) for p, width in widths.items()]
            table.add_row(*shown, style=style, end_section=number in self._sections)
        return table

    def _legend(
        self, widths: Mapping[int, int], headings: Sequence[str], hidden: Sequence[str], width: int
    ) -> Iterator[Text]:
        names = [column.heading for column in self._columns]
        changed = [f"{headings[p]}: {names[p]}" for p in widths if headings[p] != names[p]]
        if changed:
            yield Text("\n".join(_packed(changed, width)), "dim")
        if hidden:
            needed = _span(self._widths(10**9, names) or {})
            left_out = ", ".join(hidden)
            yield Text(f"left out at {width} columns: {left_out}; {needed} columns show all", "dim")

    def _blocks(self, width: int) -> Iterator[Text]:
        for number, (cells, style) in enumerate(self._rows):
            if number:
                yield Text()
            pairs = [
                f"{column.heading}: {cell}" if column.heading.strip() else cell
                for column, cell in zip(self._columns, cells, strict=True)
                if cell
            ]
            yield Text("\n".join(_packed(pairs, width)), style)


@dataclass(frozen=True)
class CodeText:
    """A line of code, broken between words and after the commas of a list."""

    text: str
    style: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        yield Text("\n".join(_lines(self.text, options.max_width)), self.style)


def _span(widths: Mapping[int, int]) -> int:
    """Return the width of a table from those of its columns."""
    return sum(widths.values()) + _GAP * len(widths) - 1


def _lines(text: str, width: int) -> list[str]:
    """Break a text between words; within a word only if it is wider than a line."""
    lines = [""]
    for piece in _PIECE.split(text):
        word = piece.rstrip()
        if lines[-1] and cell_len(lines[-1] + word) > width:
            lines.append("")
        *full, rest = chop_cells(word, width) or [""]
        lines[-1:] = [*full, lines[-1] + rest + piece[len(word) :]]
    return [line.rstrip() for line in lines]


def _packed(parts: Sequence[str], width: int) -> list[str]:
    """Put parts into lines; break a part only if it is wider than a line."""
    lines: list[str] = []
    for part in parts:
        if lines and cell_len(lines[-1]) + 2 + cell_len(part) <= width:
            lines[-1] += f"  {part}"
        else:
            lines += _lines(part, width)
    return lines


def _short_name(name: str, known: Collection[str]) -> str:
    """Shorten an axis's name: `BLOCK_M` to `BM`, `BLOCK` to `BLO`; different from those known."""
    parts = _PART.findall(name)
    initials = "".join(part if part.isdigit() else part[0] for part in parts)
    short = initials if len(parts) > 1 else name[:3]
    unique, number = short, 2
    while unique in known:
        unique, number = f"{short}{number}", number + 1
    return unique if len(unique) < len(name) else name


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


def one_line(text: str) -> str:
    """Write text of a file in one line, without control codes."""
    return printable(" ".join(text.split()))


_FORMULA: Final = frozenset("=+-@\uff1d\uff0b\uff0d\uff20")
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|nan)|-")


def spreadsheet_text(text: str) -> str:
    """Escape control codes of a text, and quote what a spreadsheet would run as a formula."""
    is_formula = text.lstrip()[:1] in _FORMULA and not _NUMBER.fullmatch(text)
    return ("'" if is_formula else "") + printable(text)


def words(values: Mapping[str, Any]) -> str:
    """Format a shape as `M=4096 N=4096`."""
    return printable(" ".join([f"{name}={value}" for name, value in values.items()]))


def dtype_words(dtypes: Mapping[str, str]) -> str:
    """Format dtypes as `fp16/fp32`, each once."""
    return printable("/".join(dict.fromkeys(dtypes.values())))


def number(value: float | None, digits: int = 1) -> str:
    """Format a number; "-" if it is not known."""
    return "-" if value is None else f"{value:.{digits}f}"


def share(value: float | None) -> str:
    """Format a share in percent; "-" if it is not known."""
    return "-" if value is None else f"{value:.1%}"


def count(value: int | None) -> str:
    """Format a whole number; "-" if it is not known."""
    return "-" if value is None else str(value)


def changes(old: Config, new: Config, among: Iterable[str] | None = None) -> str:
    """Format where two configs differ: `BLOCK 64 -> 256, num_warps 2 -> 4`."""
    before, after = old.to_dict(), new.to_dict()
    names = dict.fromkeys((*before, *after)) if among is None else among
    changed = (
        f"{name} {before.get(name, 'none')} -> {after.get(name, 'none')}"
        for name in names
        if before.get(name) != after.get(name)
    )
    return printable(", ".join(changed))
