"""Code for a terminal: counts by class, and the hottest loop line by line."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from asmtune.ir.asm.groups import Group
from asmtune.ir.asm.nvptx import OpClass
from asmtune.report.cells import plain_table
from asmtune.report.code.model import CodeLine, CodeView

STYLES: Final = {
    Group.TENSOR: "green",
    Group.COPY: "cyan",
    Group.SHARED: "blue",
    Group.GLOBAL: "magenta",
    Group.BARRIER: "yellow",
    Group.BRANCH: "bright_black",
    Group.SPILL: "red",
    Group.OTHER: "",
}
"""Colours of a terminal, by group."""


def classes_table(view: CodeView, other: CodeView | None = None) -> Table:
    """Instructions by class: in the text, in the hottest loop, executed by a thread.

    Args:
        view: the code.
        other: of another config, whose executions stand beside.
    """
    headings = ["class", "in the text", "in the hot loop", "executed"]
    if other is not None:
        headings.append("the other's")
    table = plain_table(f"{view.language} instructions of a thread", headings)
    beside = {count.kind: count.executed for count in other.classes} if other else {}
    for count in view.classes:
        row = [str(count.instructions), str(count.hot), f"{count.executed:,.0f}"]
        if other is not None:
            row.append(f"{beside.pop(count.kind, 0.0):,.0f}")
        table.add_row(_word(count.kind), *row, style=STYLES[count.group])
    for kind, executed in beside.items():
        table.add_row(_word(kind), "", "", "", f"{executed:,.0f}")
    table.add_section()
    total = [sum(c.instructions for c in view.classes), sum(c.hot for c in view.classes)]
    totals = [sum(c.executed for c in each.classes) for each in (view, other) if each is not None]
    table.add_row("all", *map(str, total), *(f"{executed:,.0f}" for executed in totals))
    return table


def _word(kind: OpClass) -> str:
    return kind.value.replace("_", " ")


def hot_loop(view: CodeView) -> RenderableType:
    """The hottest loop, each line with its source line and class."""
    notes = [Text(note, "yellow") for note in view.notes]
    if view.hot is None:
        return Stack(Text("It has no loop."), *notes)
    hot = view.hot
    title = (
        f"Hottest loop in {view.language}: depth {hot.depth}, {hot.instructions} instructions, "
        f"{hot.times:,.4g} trips a program"
    )
    lines = [line for line in view.lines if line.hot]
    files = [view.files[index] for index in _files(lines) if index in view.files]
    if files:
        title += f"; lines of {', '.join(PurePath(name).name for name in files)}"
    width = max(len(_source(line, lines)) for line in lines)
    shown = [Text(f"{_source(line, lines):>{width}}  {line.text}", _style(line)) for line in lines]
    return Stack(Text(title, "italic"), *notes, *shown)


def _files(lines: list[CodeLine]) -> list[int]:
    """Indices of source files, in the order in which lines come from them."""
    return list(dict.fromkeys(line.source[0] for line in lines if line.source is not None))


def _source(line: CodeLine, lines: list[CodeLine]) -> str:
    """`44`, or `standard.py` marked as the second file by a dot: `.263`."""
    if line.source is None:
        return ""
    return "." * _files(lines).index(line.source[0]) + str(line.source[1])


def _style(line: CodeLine) -> str:
    return "bold" if line.group is None else STYLES[line.group]
