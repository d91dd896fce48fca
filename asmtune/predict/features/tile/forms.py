"""Forms of a tile's TTIR: everything but sizes, and where the sizes are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from asmtune.ir.asm.nvptx import OpClass

Row = NDArray[np.float64]

ISSUED: Final = (
    OpClass.INTEGER,
    OpClass.LOGIC,
    OpClass.FLOAT,
    OpClass.CONVERT,
    OpClass.SPECIAL,
    OpClass.SHUFFLE,
    OpClass.BRANCH,
)
"""Classes of element-wise instructions that take an issue slot, in the order of `costs`."""


@dataclass(frozen=True)
class AccessForm:
    """A load, store or atomic.

    `argument` is the one that the address comes from, -1 if it may be several; `size` its bytes.
    """

    kind: str
    segment: int
    line: int
    argument: int
    size: int
    element_bytes: int
    bulk: bool
    feeds_product: bool


@dataclass(frozen=True)
class CollectiveForm:
    """A reduction, scan or gather along an axis; `of_product` if a product's result goes in."""

    segment: int
    words: int
    instructions: float
    scans: bool
    of_product: bool


@dataclass(frozen=True)
class DotForm:
    """A product; its left operand comes from `registers` if it was computed, not loaded."""

    segment: int
    operand: str
    operand_bits: int
    accumulator: str
    precise: bool
    registers: bool
    chained: bool


@dataclass(frozen=True)
class LoopForm:
    """A loop; `own_stages` says that the source states its stages, for loads of any use."""

    parent: int
    depth: int
    has_dot: bool
    own_stages: bool

    @property
    def pipelines(self) -> bool:
        """Return whether its loads are copied ahead where there are stages."""
        return self.has_dot or self.own_stages


@dataclass(frozen=True)
class Structure:
    """Everything of a tile's TTIR but sizes: tiles with equal structures can be compared.

    Attributes:
        nodes: segment, costs by `ISSUED`, and whether it computes addresses, once an operation.
        accesses, collectives, dots, loops: the others, in the order of the text.
    """

    nodes: tuple[tuple[int, tuple[float, ...], bool], ...]
    accesses: tuple[AccessForm, ...]
    collectives: tuple[CollectiveForm, ...]
    dots: tuple[DotForm, ...]
    loops: tuple[LoopForm, ...]

    @cached_property
    def parts(self) -> dict[str, tuple[slice, int]]:
        """Return the places of each part in a tile's numbers, and numbers for its members."""
        lengths = {
            "nodes": (len(self.nodes), 1),
            "accesses": (len(self.accesses), 4),
            "collectives": (len(self.collectives), 3),
            "dots": (len(self.dots), 5),
            "loops": (len(self.loops), 3),
            "chains": (len(self.loops) + 1, 2),
            "whole": (1, 4),
        }
        parts, start = {}, 0
        for name, (count, width) in lengths.items():
            parts[name] = (slice(start, start + count * width), width)
            start += count * width
        return parts


@dataclass(frozen=True)
class TileFacts:
    """A tile's structure, and its numbers: elements, bytes, trips and cycles of latency.

    `numbers` has, in the order of `Structure.parts`: elements of each node; elements, contiguous
    elements, runs and the share within bounds of each access; elements that go into each
    collective, that come out, and the length of its axis; m, n, k, batch and runs of each dot;
    trips, the longest program's share, and the source's own stages of each loop; latency of each
    segment with loads waited for and with copies ahead; the words that are alive at once, bytes
    that differ, and how often one address is updated and locked.
    """

    structure: Structure
    numbers: Row
