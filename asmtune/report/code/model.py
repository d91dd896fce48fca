"""A kernel's PTX, SASS or AMDGCN by line, with what is known of each line: the view of a reader.

Neutral: a terminal and a page show the same values. How often a line runs are the weights that
the features use; the SASS has those of the PTX that it comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from asmtune.ir.asm.nvptx import Group, OpClass

Language = Literal["PTX", "SASS", "AMDGCN"]

NO_SOURCES: Final = (
    "compiled without debug information (TRITON_DISABLE_LINE_INFO): no line says what it comes from"
)


@dataclass(frozen=True, slots=True)
class CodeLine:
    """A line of code as it is shown.

    Attributes:
        number: line number in the compiler's own text, from 1; empty lines are left out.
        text: without address, trailing comment and indentation by tabs.
        kind: class of its first instruction; None for a label, a directive or a brace.
        group: what `kind` stands out for; None likewise.
        source: (index into `CodeView.files`, line), where the debug information tells.
        depth: loops around it that work.
        times: executions by one program, on average; 0 of machine code that no path reaches, such
            as what fills it up; None in a function that is called, of which nothing says how often.
        hot: whether it is in the hottest loop.
        label: the name that branches use, where the line is one.
        address: of the machine code, in bytes; None in PTX and AMDGCN.
    """

    number: int
    text: str
    kind: OpClass | None
    group: Group | None
    source: tuple[int, int] | None
    depth: int
    times: float | None
    hot: bool
    label: str | None = None
    address: int | None = None


@dataclass(frozen=True, slots=True)
class ClassCount:
    """Instructions of one class, of the kernel without functions that it calls.

    They are counted in the text, in the hottest loop, and as executed by one thread of one program.
    """

    kind: OpClass
    group: Group
    instructions: int
    hot: int
    executed: float


@dataclass(frozen=True, slots=True)
class HotLoop:
    """The loop where the work is, with its executions by one program.

    It has a label if anything branches to it by name; it counts in its own depth.
    """

    label: str | None
    depth: int
    instructions: int
    times: float


@dataclass(frozen=True, slots=True)
class CodeView:
    """The code of one compiled config in one launch.

    Attributes:
        kernel: name of the entry.
        files: paths of source files, as the compiler was told them, by index.
        classes: one a class that occurs, most executed first.
        hot: None where the kernel has no loop.
        notes: caveats for the reader.
    """

    language: Language
    kernel: str
    lines: tuple[CodeLine, ...]
    files: Mapping[int, str]
    classes: tuple[ClassCount, ...]
    hot: HotLoop | None
    notes: tuple[str, ...]
