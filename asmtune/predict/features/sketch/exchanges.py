"""Reductions, scans and changes of layout: what threads tell each other."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from asmtune.ir.asm.nvptx import OpClass
from asmtune.ir.ttir.tree import Node
from asmtune.predict.features.profile import Traffic
from asmtune.predict.features.sketch.costs import Cost, element_cost
from asmtune.predict.features.sketch.layouts import TensorLayout
from asmtune.predict.features.sketch.memory import ROUND, WIDEST, convert_kind
from asmtune.predict.features.sketch.sums import Sums
from asmtune.predict.features.sketch.values import Kind, Values

_AXIS: Final = re.compile(r"axis = (\d+)").search


def add_reduction(sums: Sums, values: Values, node: Node, line: int) -> None:
    """A tree over a thread's own elements, over lanes by shuffles, over warps by shared memory."""
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
    """Each warp stores its part, some threads combine the parts, all read the whole."""
    for direction in ("store", "load"):
        sums.touch(direction)
    # The warp that combines the parts writes where it has read them.
    sums.read = False
    for direction in ("store", "load"):
        sums.touch(direction)
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
    """Like a reduction, and once more over the thread's own elements for the prefix."""
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
    """Instructions of one combination: the operations of the node's region."""
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
    """A tile from one layout to another: within threads, within warps, or through memory.

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
        sums.touch(direction)
        width = max(1, min(WIDEST, held * size))
        moved = Traffic("shared", direction, width, copies=False, line=line)
        sums.move(moved, max(1.0, held * size / width))
    sums.add({OpClass.INTEGER: 4.0})
