"""Requests of a warp to global memory, and its passes over shared memory, from TTGIR's layouts.

Shared memory has 32 banks of 4-byte words: words of one bank that an instruction wants at once take
a pass each. The scratch buffers of `convert_layout` are passed over, since TTGIR does not state
their layout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from asmtune.ir.ttir.parser import parse_ttir
from asmtune.ir.ttir.tree import Node, build_tree
from asmtune.predict.features.requests import BankWays, Request, Requests
from asmtune.predict.features.sketch.demand import MEMORY, Run
from asmtune.predict.features.sketch.layouts import (
    TensorLayout,
    combined,
    kind_of,
    number,
    numbers,
    parent_of,
    read_aliases,
)
from asmtune.predict.features.sketch.memory import along_k, fast_axis, memory_bits, vector_of
from asmtune.predict.features.sketch.values import Kind, Values


def read_moves(ttgir: str, num_warps: int) -> tuple[Requests, BankWays]:
    """Read the requests and the conflicts of banks off a TTGIR text.

    Raises:
        ParseError: the text is not an MLIR module of Triton's.
    """
    values = Values(build_tree(parse_ttir(ttgir)), read_aliases(ttgir), num_warps)
    runs = {node: vector_of(values, node) for node in values.tree.nodes() if node.name in MEMORY}
    return global_requests(values), bank_ways(values, runs)


def global_requests(values: Values) -> Requests:
    """Return the requests of a kernel; the copies of a pipelined load count once."""
    requests: dict[tuple[int, str], dict[Request, None]] = {}
    for node in values.tree.nodes():
        shape = values.kind(node.operands[0]).shape if node.name in MEMORY else ()
        where = values.tree.line_of(node)
        if not shape or where is None:
            continue
        direction = "store" if node.name == "tt.store" else "load"
        direction = "atomic" if node.name.startswith("tt.atomic") else direction
        layout = values.layout(node.operands[0])
        registers = tuple(basis for basis in layout.registers if any(basis))
        size = memory_bits(values, node) // 8
        request = Request(shape, size, layout.fast, layout.lanes, registers)
        requests.setdefault((where[1], direction), {})[request] = None
    return {place: tuple(found) for place, found in requests.items()}


def bank_ways(values: Values, runs: Mapping[Node, Run]) -> BankWays:
    """Return the ways in which the lanes of a warp meet in banks, where there is more than one."""
    ways: dict[tuple[int, str], float] = {}
    for move in shared_moves(values, runs):
        counted, where = move.passes, values.tree.line_of(move.node)
        if counted is not None and where is not None and counted[0] > counted[1]:
            place = (where[1], move.direction)
            ways[place] = max(ways.get(place, 1.0), counted[0] / counted[1])
    return ways


def shared_moves(values: Values, runs: Mapping[Node, Run]) -> Iterator[SharedMove]:
    """Yield the operations between registers, or global memory, and a buffer in shared memory."""
    for node in values.tree.nodes():
        if node.name == "ttg.local_load":
            value, buffer, direction = node.results[0], node.operands[0], "load"
        elif node.name == "ttg.local_store":
            value, buffer, direction = node.operands[0], node.operands[1], "store"
        elif node.name == "ttg.local_alloc" and node.operands:
            value, buffer, direction = node.operands[0], node.results[0], "store"
        elif node.name == "ttg.async_copy_global_to_local":
            value, buffer, direction = node.operands[0], node.operands[1], "copy"
        else:
            continue
        owner = values.tree.sources[buffer][0]
        is_part = isinstance(owner, Node) and owner.name == "ttg.memdesc_subslice"
        kinds = values.kind(value), values.kind(buffer)
        yield SharedMove(node, direction, *kinds, values.layout(value), runs.get(node), is_part)


_BANKS: Final = 32
_WORD: Final = 4
_VECTOR: Final = 16


@dataclass(frozen=True)
class SharedMove:
    """A move between the registers of a layout and a buffer in shared memory.

    Attributes:
        node: the operation.
        direction: "load", "store", or "copy" for an asynchronous copy into the buffer.
        kind: of the value; of a copy, of its addresses.
        buffer: its type.
        layout: of the value.
        run: axis and elements of one instruction of a copy; None for other moves.
        is_part: whether the buffer is a slice of a larger one.
    """

    node: Node
    direction: str
    kind: Kind
    buffer: Kind
    layout: TensorLayout
    run: Run | None
    is_part: bool

    @property
    def width(self) -> int:
        """Return the bytes of a thread's instruction."""
        if not self._is_whole:
            return self._size
        run = self.layout.run(self._fast)
        if self.run is not None:
            run = self.run[1] if self.run[0] == self._fast else 1
        return min(run * self._size, self._piece, _VECTOR)

    @property
    def passes(self) -> tuple[int, int] | None:
        """Return the passes of a warp's instruction, with and without conflicts, or None."""
        if not self._is_whole:
            return None
        return _passes(self.layout, self.buffer, self.width, self._is_matrix_load)

    @property
    def _is_whole(self) -> bool:
        return (
            not self.is_part
            and len(self.buffer.shape) > 0
            and (self.kind.shape == self.buffer.shape)
        )

    @property
    def _size(self) -> int:
        return max(1, self.buffer.bits // 8)

    @property
    def _fast(self) -> int:
        return fast_axis(self.buffer.encoding, len(self.buffer.shape))

    @property
    def _piece(self) -> int:
        """Return the bytes that the buffer's layout keeps together."""
        encoding = self.buffer.encoding
        if kind_of(encoding) == "swizzled_shared" and number(encoding, "maxPhase", 1) > 1:
            return number(encoding, "vec", 1) * self._size
        return _VECTOR

    @property
    def _is_matrix_load(self) -> bool:
        encoding = self.kind.encoding
        is_operand = kind_of(encoding) == "dot_op" and kind_of(parent_of(encoding)) == "nvidia_mma"
        if not is_operand or self.kind.bits != 16:
            return False
        return not along_k(self.kind, self.buffer.encoding)


@lru_cache(maxsize=4096)
def _passes(
    layout: TensorLayout, buffer: Kind, width: int, is_matrix: bool
) -> tuple[int, int] | None:
    fast, origin = fast_axis(buffer.encoding, len(buffer.shape)), (0,) * len(buffer.shape)
    if shared_offset(buffer, fast, origin) is None:
        return None

    def lanes(register: int) -> list[int]:
        first = combined(layout.registers, register, origin)
        places = (combined(layout.lanes, lane, first) for lane in range(1 << len(layout.lanes)))
        return [shared_offset(buffer, fast, place) or 0 for place in places]

    if is_matrix:
        # ldmatrix.trans reads 8 rows of 16 bytes: two of the layout's registers.
        groups = [[*lanes(0), *lanes(1)]]
    else:
        own = lanes(0)
        step = max(1, len(own) * _WORD // max(_WORD, width))
        groups = [own[at : at + step] for at in range(0, len(own), step)]
    counted = [_group(group, width) for group in groups]
    return sum(passes for passes, _ in counted), sum(least for _, least in counted)


def _group(offsets: Sequence[int], width: int) -> tuple[int, int]:
    words: set[int] = set()
    for offset in offsets:
        words.update(range(offset // _WORD, (offset + width - 1) // _WORD + 1))
    banks = Counter(word % _BANKS for word in words)
    return max(banks.values()), -(-len(words) // _BANKS)


def shared_offset(buffer: Kind, fast: int, place: tuple[int, ...]) -> int | None:
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
