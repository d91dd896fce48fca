"""Operations that move whole tiles: between layouts, threads, shared and tensor memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from asmtune.ir.asm.nvptx import OpClass
from asmtune.ir.ttir.tree import Node
from asmtune.predict.features.sketch.costs import Cost, element_cost
from asmtune.predict.features.sketch.demand import Spread
from asmtune.predict.features.sketch.memory import (
    ROUND,
    WIDEST,
    add_shared,
    convert_kind,
    shared_width,
)
from asmtune.predict.features.sketch.sums import Sums
from asmtune.predict.features.sketch.values import Values

_AXIS: Final = re.compile(r"axis = (\d+)").search


@dataclass(frozen=True, slots=True)
class Tile:
    """An operation on tiles, at a line of the source."""

    values: Values
    spread: Spread
    node: Node
    line: int

    @property
    def axis(self) -> int:
        """The axis of a reduction or a scan."""
        match = _AXIS(self.node.text)
        return int(match[1]) if match else 0


def _reduce(sums: Sums, tile: Tile) -> None:
    """Count a tree over a thread's elements, lanes (shuffles) and warps (shared memory)."""
    values, operands, axis = tile.values, tile.node.operands, tile.axis
    layout = values.layout(operands[0])
    combine = _combining(values, tile.node)
    words = sum(max(1, values.kind(value).bits // 32) for value in operands)
    every = frozenset(range(len(values.kind(operands[0]).shape)))
    held, rows = layout.distinct(every), layout.distinct(every - {axis})
    sums.add(combine, held - rows)
    lanes = layout.along(layout.lanes, axis).bit_length() - 1
    sums.add({OpClass.SHUFFLE: lanes * rows * words})
    sums.add(combine, lanes * rows)
    warps = layout.along(layout.warps, axis)
    if warps > 1:
        _across_warps(sums, tile, rows, warps)
        sums.add(combine, warps.bit_length() - 1)


def _across_warps(sums: Sums, tile: Tile, rows: int, warps: int) -> None:
    """Count a combination of warps: each stores its part, some combine, all read the result."""
    for direction in ("store", "load"):
        sums.use_shared(direction)
    # The warp that combines the parts writes where it has read them.
    sums.read = False
    for direction in ("store", "load"):
        sums.use_shared(direction)
    for value in tile.node.operands:
        size = max(1, tile.values.kind(value).bits // 8)
        for direction in ("store", "load"):
            sums.move_shared(direction, size, tile.line, rows + 1)
    shuffles = len(tile.node.operands) * (warps.bit_length() - 1)
    sums.add({OpClass.SHUFFLE: shuffles, OpClass.LOGIC: 4.0, OpClass.INTEGER: 4.0})


def _scan(sums: Sums, tile: Tile) -> None:
    """Count a scan: a reduction, and once more over the thread's own elements."""
    operand, words, axis = tile.node.operands[0], len(tile.node.operands), tile.axis
    layout = tile.values.layout(operand)
    combine = _combining(tile.values, tile.node)
    held = layout.distinct(frozenset(range(len(tile.values.kind(operand).shape))))
    runs = max(1, held // layout.run(axis))
    lanes = layout.along(layout.lanes, axis).bit_length() - 1
    sums.add(combine, 2 * held)
    sums.add({OpClass.SHUFFLE: (lanes + 1) * runs * words, OpClass.LOGIC: lanes * runs * words})
    sums.add(combine, lanes * runs)
    warps = layout.along(layout.warps, axis)
    if warps > 1:
        _across_warps(sums, tile, runs, warps)
        sums.add(combine, warps * runs)


def _combining(values: Values, node: Node) -> Cost:
    """Return the instructions of one combination: the operations of the node's region."""
    total: Counter[OpClass] = Counter()
    for inner in (inner for region in node.regions for body in region for inner in body.nodes):
        if inner.results and inner.operands:
            kinds = values.kind(inner.results[0]), values.kind(inner.operands[0])
            total.update(element_cost(inner, *kinds))
    return dict(total)


def _convert(sums: Sums, tile: Tile) -> None:
    """Count a change of layout: within threads, within warps, or through memory."""
    before, after = tile.node.operands[0], tile.node.results[0]
    source, target = tile.values.layout(before), tile.values.layout(after)
    axes, way = tile.spread.of(before), convert_kind(source, target)
    if way == "none" or not axes:
        return
    size = max(1, tile.values.kind(before).bits // 8)
    given, taken = source.distinct(axes), target.distinct(axes)
    if way == "shuffle":
        words = max(1.0, max(given, taken) * size / ROUND)
        sums.add({OpClass.SHUFFLE: words, OpClass.LOGIC: 2 * words})
        return
    for direction, held in (("store", given), ("load", taken)):
        sums.use_shared(direction)
        width = max(1, min(WIDEST, held * size))
        sums.move_shared(direction, width, tile.line, max(1.0, held * size / width))
    sums.add({OpClass.INTEGER: 4.0})


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
        v for v in (*tile.node.results, *tile.node.operands) if values.kind(v).role == "tensor"
    ]
    if tiles:
        held = values.layout(tiles[0]).elements * values.kind(tiles[0]).bits / 32
        sums.add({OpClass.TENSOR_MEMORY: max(1.0, held / _ROWS), OpClass.ASYNC_WAIT: 1.0})


def _gather(sums: Sums, tile: Tile) -> None:
    """Count a move through shared memory, an element at a time."""
    value = tile.node.operands[0]
    kind = tile.values.kind(value)
    held = tile.values.layout(value).elements if kind.shape else 1
    for direction in ("store", "load"):
        sums.use_shared(direction)
        sums.move_shared(direction, max(1, kind.bits // 8), tile.line, held)
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
"""The function that counts each operation on tiles."""
