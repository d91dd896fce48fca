"""What TTIR text is made of: operations, blocks, functions; data without meaning."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

_POSITION: Final = re.compile(r'"([^"]*)":(\d{1,9}):(\d{1,9})').search
_REFERENCE: Final = re.compile(r"#loc\d*").search


@dataclass(slots=True)
class Argument:
    """A value that a block or function is entered with.

    Attributes:
        value: its name in the text, with the percent sign.
        type: MLIR's type, as text.
        location: text inside its `loc(...)`, or "".
    """

    value: str
    type: str
    location: str = ""


@dataclass(slots=True)
class Operation:
    """One operation of the text; not frozen, for speed.

    Attributes:
        name: with its dialect ("arith.addi").
        results: names of its results; a pack `%4:2` gives `%4#0` and `%4#1`.
        operands: names in the order of the text; those of regions are not among them. For
            `scf.for`: lower bound, upper bound, step, then the initial values.
        text: attributes and types as written; those after a region's end included.
        location: text inside `loc(...)`, or "".
        regions: lists of blocks.
        line: line of the text, from 1.
    """

    name: str
    results: tuple[str, ...]
    operands: tuple[str, ...]
    text: str
    location: str
    line: int
    regions: list[list[OpBlock]] = field(default_factory=list)


@dataclass(slots=True)
class OpBlock:
    """Operations that run one after another.

    Attributes:
        label: its name without the caret, or "" for a region's first.
        arguments: what it is entered with.
        operations: in order.
    """

    label: str
    arguments: list[Argument] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)


@dataclass(slots=True)
class Function:
    """A function; one without blocks is defined elsewhere.

    Attributes:
        name: its symbol, without quotes.
        public: whether it is a kernel.
        noinline: whether the compiler must keep calls to it.
        arguments: its parameters; constants of the specialisation are not among them.
        blocks: its body.
        line: line of the text, from 1.
        location: text inside the `loc(...)` at its end, or "".
    """

    name: str
    public: bool
    noinline: bool
    arguments: list[Argument]
    blocks: list[OpBlock]
    line: int
    location: str = ""


@dataclass(frozen=True)
class Module:
    """One TTIR text.

    Attributes:
        functions: by name.
        locations: texts of location aliases by name (`#loc3`).
    """

    functions: Mapping[str, Function]
    locations: Mapping[str, str]

    @cached_property
    def kernel(self) -> Function:
        """The first public function, else the first."""
        functions = list(self.functions.values())
        return next((f for f in functions if f.public and f.blocks), functions[0])

    def position(self, location: str) -> tuple[str, int] | None:
        """File and line that a location stands for, or None if it has none."""
        for _ in range(16):
            if match := _POSITION(location):
                return match[1], int(match[2])
            reference = _REFERENCE(location)
            if reference is None:
                return None
            location = self.locations.get(reference[0], "")
        return None
