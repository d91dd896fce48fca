"""Conflicts of shared memory's banks: words of one bank that a warp's instruction wants at once.

They follow from the layout of the registers and that of the buffer, as TTGIR states both. Other
layouts of buffers than swizzled ones and those of the tensor cores are passed over, and so are
the scratch buffers of `convert_layout`, whose layout TTGIR does not state.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from asmtune.ir.ttir.tree import Node
from asmtune.predict.features.execution import executions
from asmtune.predict.features.profile import Profile
from asmtune.predict.features.sketch.layouts import (
    TensorLayout,
    kind_of,
    layout_of,
    number,
    numbers,
    parent_of,
)
from asmtune.predict.features.sketch.memory import along_k, fast_axis
from asmtune.predict.features.sketch.values import Kind
from asmtune.predict.why.access import KernelAccesses, combined
from asmtune.predict.why.addresses import Place

_BANKS: Final = 32
_WORD: Final = 4
_VECTOR: Final = 16


@dataclass(frozen=True)
class BankConflict:
    """A load or store of shared memory whose lanes meet in banks.

    Attributes:
        line: of the source.
        direction: "load", "store", or "copy" for an asynchronous copy into it.
        width: bytes of a thread's instruction.
        passes, least: times that the memory is read for an instruction, and without conflicts.
        cycles: that the conflicts add to one program.
    """

    line: int
    direction: str
    width: int
    passes: int
    least: int
    cycles: float

    def __str__(self) -> str:
        words = {"load": "load from", "store": "store to", "copy": "copy into"}[self.direction]
        return (
            f"line {self.line}: {words} shared memory, {self.width} B a thread: {self.passes} "
            f"passes a warp's instruction where {self.least} would do"
        )


def bank_conflicts(accesses: KernelAccesses, stages: int) -> tuple[BankConflict, ...]:
    """Return the conflicts of a config, the costliest first; loops run as the launch has it."""
    kernel, values = accesses.kernel, accesses.kernel.values
    segments = tuple(sums.segment(values.num_warps, stages) for sums in kernel.sums)
    runs = executions(Profile(segments, values.num_warps, stages, {}), accesses.work)
    conflicts: dict[tuple[int, str], BankConflict] = {}
    for node, value, buffer, direction in _moves(accesses):
        move = _Move(accesses, node, value, buffer)
        counted = move.passes()
        position = values.tree.line_of(node)
        if counted is None or position is None or counted[0] < 2 * counted[1]:
            continue
        times = runs[kernel.segment_of(node.body)].times * values.num_warps * move.instructions
        line, (passes, least) = position[1], counted
        known = conflicts.get((line, direction))
        cycles = (passes - least) * times + (known.cycles if known else 0.0)
        one = BankConflict(line, direction, move.width, passes, least, cycles)
        conflicts[line, direction] = one
    return tuple(sorted(conflicts.values(), key=lambda one: -one.cycles))


def _moves(accesses: KernelAccesses) -> Iterator[tuple[Node, int, int, str]]:
    """Yield operations between registers and a buffer: value (of a copy, its addresses), buffer."""
    for node in accesses.kernel.values.tree.nodes():
        if node.name == "ttg.local_load":
            yield node, node.results[0], node.operands[0], "load"
        elif node.name == "ttg.local_store":
            yield node, node.operands[0], node.operands[1], "store"
        elif node.name == "ttg.local_alloc" and node.operands:
            yield node, node.operands[0], node.results[0], "store"
        elif node.name == "ttg.async_copy_global_to_local":
            yield node, node.operands[0], node.operands[1], "copy"


class _Move:
    """A move between the registers of a layout and a buffer in shared memory."""

    def __init__(self, accesses: KernelAccesses, node: Node, value: int, buffer: int) -> None:
        values = accesses.kernel.values
        self._kind, self._buffer = values.kind(value), values.kind(buffer)
        self._layout = layout_of(_ordered(self._kind.encoding), self._kind.shape, values.num_warps)
        self._size = max(1, self._buffer.bits // 8)
        owner = values.tree.sources[buffer][0]
        self._is_part = isinstance(owner, Node) and owner.name == "ttg.memdesc_subslice"
        self.width = self._size
        if len(self._buffer.shape) < 1 or self._kind.shape != self._buffer.shape:
            self._is_part = True
            return
        fast = fast_axis(self._buffer.encoding, len(self._buffer.shape))
        run = self._layout.run(fast)
        if node in accesses.kernel.runs:
            axis, copied = accesses.kernel.runs[node]
            run = copied if axis == fast else 1
        self._fast = fast
        self.width = min(run * self._size, self._piece(), _VECTOR)

    def _piece(self) -> int:
        """Return the bytes that the buffer's layout keeps together."""
        encoding = self._buffer.encoding
        if kind_of(encoding) == "swizzled_shared":
            return number(encoding, "vec", 1) * self._size
        return _VECTOR

    @property
    def instructions(self) -> float:
        """Instructions of a thread that move its part of the tile."""
        axes = frozenset(range(len(self._kind.shape)))
        return max(1.0, self._layout.distinct(axes) * self._size / self.width)

    def passes(self) -> tuple[int, int] | None:
        """Return passes of a warp's instruction, with and without conflicts; None if not known."""
        if self._is_part or self._offset((0,) * len(self._kind.shape)) is None:
            return None
        if self._is_matrix_load():
            # ldmatrix.trans reads 8 rows of 16 bytes: two of the layout's registers.
            groups = [[*self._lanes(0), *self._lanes(1)]]
        else:
            lanes = self._lanes(0)
            step = max(1, len(lanes) * _WORD // max(_WORD, self.width))
            groups = [lanes[at : at + step] for at in range(0, len(lanes), step)]
        counted = [self._group(group) for group in groups]
        return sum(passes for passes, _ in counted), sum(least for _, least in counted)

    def _lanes(self, register: int) -> list[Place]:
        layout: TensorLayout = self._layout
        first = combined(layout.registers, register, (0,) * len(self._kind.shape))
        return [combined(layout.lanes, lane, first) for lane in range(1 << len(layout.lanes))]

    def _group(self, places: Sequence[Place]) -> tuple[int, int]:
        words: set[int] = set()
        for place in places:
            offset = self._offset(place) or 0
            words.update(range(offset // _WORD, (offset + self.width - 1) // _WORD + 1))
        banks = Counter(word % _BANKS for word in words)
        return max(banks.values()), -(-len(words) // _BANKS)

    def _is_matrix_load(self) -> bool:
        encoding = self._kind.encoding
        is_operand = kind_of(encoding) == "dot_op" and kind_of(parent_of(encoding)) == "nvidia_mma"
        if not is_operand or self._kind.bits != 16:
            return False
        return not along_k(self._kind, self._buffer.encoding)

    def _offset(self, place: Place) -> int | None:
        return shared_offset(self._buffer, self._fast, place)


_TRAILING: Final = re.compile(r"(#ttg\.dot_op<\{opIdx = \d+), (parent = .*), (kWidth = \d+)\}>$")


def _ordered(encoding: str) -> str:
    """Return an operand's encoding with its own attributes before its parent's.

    TTGIR writes `kWidth` last, where `own_part` takes it for the parent's.
    """
    return _TRAILING.sub(r"\1, \3, \2}>", encoding)


def shared_offset(buffer: Kind, fast: int, place: Place) -> int | None:
    """Return the byte at which an element lies in a buffer; None of an unknown layout.

    After `lib/Dialect/TritonGPU/IR/LinearLayoutConversions.cpp` in Triton.
    """
    size, encoding, shape = max(1, buffer.bits // 8), buffer.encoding, buffer.shape
    column = place[fast] * size
    order = numbers(encoding, "order") or tuple(reversed(range(len(shape))))
    if kind_of(encoding) == "nvmma_shared":
        if len(shape) != 2:
            return None
        slow = 1 - fast
        swizzle = number(encoding, "swizzlingByteWidth", 0)
        width = max(_VECTOR, swizzle)
        chunk, inner = divmod(column, width)
        row = place[slow]
        phase = row // (128 // swizzle) % (swizzle // _VECTOR) if swizzle else 0
        swizzled = (inner // _VECTOR ^ phase) * _VECTOR + inner % _VECTOR
        return (chunk * shape[slow] + row) * width + swizzled
    if kind_of(encoding) != "swizzled_shared" or len(order) != len(shape):
        return None
    piece = number(encoding, "vec", 1) * size
    row = place[order[1]] if len(order) > 1 else 0
    phase = row // number(encoding, "perPhase", 1) % number(encoding, "maxPhase", 1)
    offset, extent = (column // piece ^ phase) * piece + column % piece, shape[fast] * size
    for axis in order[1:]:
        offset += place[axis] * extent
        extent *= shape[axis]
    return offset
