"""Operations that move whole tiles: between layouts, threads, shared and tensor memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from asmtune.ir.asm.nvptx import OpClass
from asmtune.ir.ttir.tree import Node
from asmtune.predict.features.profile import Traffic
from asmtune.predict.features.sketch.costs import Cost, element_cost
from asmtune.predict.features.sketch.demand import Spread
from asmtune.predict.features.sketch.layouts import TensorLayout
from asmtune.predict.features.sketch.memory import (
    ROUND,
    WIDEST,
    add_shared,
    convert_kind,
    shared_width,
)
from asmtune.predict.features.sketch.sums import Sums
from asmtune.predict.features.sketch.values import Kind, Values

_AXIS: Final = re.compile(r"axis = (\d+)").search


def add_reduction(sums: Sums, values: Values, node: Node, line: int) -> None:
    """Count a tree over a thread's elements, lanes (shuffles) and warps (shared memory)."""
    operand = node.operands[0]
    kind, layout = values.kind(operand), values.layout(operand)
    match = _AXIS(node.text)
    axis = int(match[1]) if match else 0
    combine = _combining(values, node)
    words = sum(max(1, values.kind(value).bits // 32) for value in node.operands)
    every = frozenset(range(len(kind.shape)))
    held, rows = layout.distinct(every), layout.distinct(every - {axis})
    sums.add(combine, held - rows)
    lanes = layout.along(layout.lanes, axis).bit_length() - 1
    sums.add({OpClass.SHUFFLE: lanes * rows * words})
    sums.add(combine, lanes * rows)
    warps = layout.along(layout.warps, axis)
    if warps > 1:
        _across_warps(sums, values, node, rows, warps, line)
        sums.add(combine, warps.bit_length() - 1)


def _across_warps(sums: Sums, values: Values, node: Node, rows: int, warps: int, line: int) -> None:
    """Count a combination of warps: each stores its part, some combine, all read the result."""
    for direction in ("store", "load"):
        sums.use_shared(direction)
    # The warp that combines the parts writes where it has read them.
    sums.read = False
    for direction in ("store", "load"):
        sums.use_shared(direction)
    for value in node.operands:
        size = max(1, values.kind(value).bits // 8)
        for direction, times in (("store", rows + 1), ("load", rows + 1)):
            sums.move(Traffic("shared", direction, size, copies=False, line=line), times)
    words = len(node.operands)
    sums.add(
        {
            OpClass.SHUFFLE: words * (warps.bit_length() - 1),
            OpClass.LOGIC: 4.0,
            OpClass.INTEGER: 4.0,
        }
    )


def add_scan(sums: Sums, values: Values, node: Node, line: int) -> None:
    """Count a scan: a reduction, and once more over the thread's own elements."""
    operand = node.operands[0]
    kind, layout = values.kind(operand), values.layout(operand)
    match = _AXIS(node.text)
    axis = int(match[1]) if match else 0
    combine = _combining(values, node)
    every = frozenset(range(len(kind.shape)))
    held = layout.distinct(every)
    runs = max(1, held // layout.run(axis))
    words = len(node.operands)
    lanes = layout.along(layout.lanes, axis).bit_length() - 1
    sums.add(combine, 2 * held)
    sums.add({OpClass.SHUFFLE: (lanes + 1) * runs * words, OpClass.LOGIC: lanes * runs * words})
    sums.add(combine, lanes * runs)
    warps = layout.along(layout.warps, axis)
    if warps > 1:
        _across_warps(sums, values, node, runs, warps, line)
        sums.add(combine, warps * runs)


def _combining(values: Values, node: Node) -> Cost:
    """Return the instructions of one combination: the operations of the node's region."""
    total: Counter[OpClass] = Counter()
    for region in node.regions:
        for body in region:
            for inner in body.nodes:
                if inner.results and inner.operands:
                    cost = element_cost(
                        inner, values.kind(inner.results[0]), values.kind(inner.operands[0])
                    )
                    total.update(cost)
    return dict(total)


def add_conversion(
    sums: Sums,
    layouts: tuple[TensorLayout, TensorLayout],
    kind: Kind,
    axes: frozenset[int],
    line: int,
) -> None:
    """Count a change of layout: within threads, within warps, or through memory.

    Args:
        sums: of the segment.
        layouts: before and after.
        kind: of the tile.
        axes: along which its elements differ.
        line: of the source.
    """
    source, target = layouts
    way = convert_kind(source, target)
    if way == "none" or not axes:
        return
    size = max(1, kind.bits // 8)
    given, taken = source.distinct(axes), target.distinct(axes)
    if way == "shuffle":
        words = max(1.0, max(given, taken) * size / ROUND)
        sums.add({OpClass.SHUFFLE: words, OpClass.LOGIC: 2 * words})
        return
    for direction, held in (("store", given), ("load", taken)):
        sums.use_shared(direction)
        width = max(1, min(WIDEST, held * size))
        moved = Traffic("shared", direction, width, copies=False, line=line)
        sums.move(moved, max(1.0, held * size / width))
    sums.add({OpClass.INTEGER: 4.0})


@dataclass(frozen=True, slots=True)
class Tile:
    """An operation on tiles.

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
    """Count a move through shared memory, an element at a time."""
    value = tile.node.operands[0]
    kind = tile.values.kind(value)
    held = tile.values.layout(value).elements if kind.shape else 1
    for direction in ("store", "load"):
        sums.use_shared(direction)
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
"""The function that counts each operation on tiles."""
