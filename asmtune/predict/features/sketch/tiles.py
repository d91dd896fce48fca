"""Operations that move whole tiles: between layouts, threads, shared and tensor memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from asmtune.ir.asm.nvptx import OpClass
from asmtune.ir.ttir.tree import Node
from asmtune.predict.features.profile import Traffic
from asmtune.predict.features.sketch.demand import Spread
from asmtune.predict.features.sketch.exchanges import add_conversion, add_reduction, add_scan
from asmtune.predict.features.sketch.memory import add_shared, shared_width
from asmtune.predict.features.sketch.sums import Sums
from asmtune.predict.features.sketch.values import Values


@dataclass(frozen=True, slots=True)
class Tile:
    """One operation on tiles.

    Attributes:
        values: of the kernel.
        spread: along which axes they differ.
        node: the operation.
        line: of the source.
    """

    values: Values
    spread: Spread
    node: Node
    line: int


def _reduce(sums: Sums, tile: Tile) -> None:
    add_reduction(sums, tile.values, tile.node, tile.line)


def _scan(sums: Sums, tile: Tile) -> None:
    add_scan(sums, tile.values, tile.node, tile.line)


def _convert(sums: Sums, tile: Tile) -> None:
    source, result = tile.node.operands[0], tile.node.results[0]
    layouts = tile.values.layout(source), tile.values.layout(result)
    add_conversion(sums, layouts, tile.values.kind(source), tile.spread.of(source), tile.line)


def _load(sums: Sums, tile: Tile) -> None:
    result = tile.node.results[0]
    kind, layout = tile.values.kind(result), tile.values.layout(result)
    buffer = tile.values.kind(tile.node.operands[0]).encoding
    add_shared(sums, "load", layout, kind, shared_width(kind, layout, buffer), tile.line)


def _store(sums: Sums, tile: Tile) -> None:
    node = tile.node
    if not node.operands:
        return
    value = node.operands[0]
    kind, layout = tile.values.kind(value), tile.values.layout(value)
    buffer = tile.values.kind((*node.results, *node.operands[1:])[0]).encoding
    add_shared(sums, "store", layout, kind, shared_width(kind, layout, buffer), tile.line)


_ROWS: Final = 64
"""Words of tensor memory that one instruction moves for a thread."""


def _tensor_memory(sums: Sums, tile: Tile) -> None:
    values = tile.values
    tiles = [
        value
        for value in (*tile.node.results, *tile.node.operands)
        if values.kind(value).role == "tensor"
    ]
    if tiles:
        held = values.layout(tiles[0]).elements * values.kind(tiles[0]).bits / 32
        sums.add({OpClass.TENSOR_MEMORY: max(1.0, held / _ROWS), OpClass.ASYNC_WAIT: 1.0})


def _gather(sums: Sums, tile: Tile) -> None:
    """Through shared memory, an element at a time."""
    value = tile.node.operands[0]
    kind = tile.values.kind(value)
    held = tile.values.layout(value).elements if kind.shape else 1
    for direction in ("store", "load"):
        sums.touch(direction)
        moved = Traffic("shared", direction, max(1, kind.bits // 8), copies=False, line=tile.line)
        sums.move(moved, held)
    sums.add({OpClass.INTEGER: 2.0 * held})


TILES: Final[Mapping[str, Callable[[Sums, Tile], None]]] = {
    "tt.reduce": _reduce,
    "tt.scan": _scan,
    "ttg.convert_layout": _convert,
    "ttg.local_load": _load,
    "ttg.local_store": _store,
    "ttg.local_alloc": _store,
    "ttng.tmem_load": _tensor_memory,
    "ttng.tmem_store": _tensor_memory,
    "ttng.tmem_alloc": _tensor_memory,
    "tt.gather": _gather,
    "tt.histogram": _gather,
}
"""How each operation on tiles is counted."""
