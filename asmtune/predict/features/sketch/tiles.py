"""Operations on whole tiles: matrix products, and moves between layouts, threads and memories.

A product counts tensor instructions, their FLOPs and their reads of shared memory.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from asmtune.ir.asm.nvptx import OpClass
from asmtune.ir.ttir.tree import Node
from asmtune.predict.features.profile import ROW_BYTES
from asmtune.predict.features.sketch.demand import Spread
from asmtune.predict.features.sketch.layouts import kind_of, number, numbers
from asmtune.predict.features.sketch.memory import ROUND, WIDEST, Sums, add_shared, shared_width
from asmtune.predict.features.sketch.values import Cost, Kind, Values, axis_of, element_cost


@dataclass(frozen=True, slots=True)
class Tile:
    """An operation on tiles, at a line of the source."""

    values: Values
    spread: Spread
    node: Node
    line: int


def _reduce(sums: Sums, tile: Tile) -> None:
    """Count a tree over a thread's elements, lanes (shuffles) and warps (shared memory)."""
    values, operands, axis = tile.values, tile.node.operands, axis_of(tile.node)
    layout = values.layout(operands[0])
    combine = combining(values, tile.node)
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
    operand, words, axis = tile.node.operands[0], len(tile.node.operands), axis_of(tile.node)
    layout = tile.values.layout(operand)
    combine = combining(tile.values, tile.node)
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


def combining(values: Values, node: Node) -> Cost:
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
    axes = tile.spread.of(before)
    if not axes or (source.warps, source.lanes) == (target.warps, target.lanes):
        return
    size = max(1, tile.values.kind(before).bits // 8)
    given, taken = source.distinct(axes), target.distinct(axes)
    if source.warps == target.warps:
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


_WARPGROUP: Final = 4
_K_BITS: Final = 256
"""Bits of K that one tensor instruction of sm_80 and newer takes a row."""

_PTX_TYPES: Final = {
    "f16": "f16",
    "bf16": "bf16",
    "f32": "tf32",
    "f64": "f64",
    "i8": "s8",
    "f8E4M3FN": "e4m3",
    "f8E5M2": "e5m2",
}


@dataclass(frozen=True)
class _Product:
    """Extents of a product, and the types that decide which instruction computes it."""

    batch: int
    m: int
    n: int
    k: int
    left: Kind
    right: Kind
    result: Kind

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def operand(self) -> str:
        """Return PTX's name of the operands' type; e2m1 for two 4-bit numbers a byte."""
        return _PTX_TYPES.get(self.left.element, self.left.element)

    @property
    def k_step(self) -> int:
        return max(1, _K_BITS // max(1, self.left.bits))


def add_product(sums: Sums, values: Values, node: Node) -> None:
    """Count one product, by the tensor instruction that the result's layout is of."""
    product = _read(values, node)
    if product is None:
        return
    if node.name.startswith("ttng.tc_gen5"):
        _tcgen05(sums, product)
    elif kind_of(product.result.encoding) == "nvidia_mma":
        if number(product.result.encoding, "versionMajor", 2) == 3:
            _wgmma(sums, values, product)
        else:
            # Products of lower precision that make one of 32-bit floats.
            passes = 3 if product.left.bits == 32 and "tf32x3" in node.text else 1
            _mma_sync(sums, values, product, passes)
    else:
        held = values.layout(node.results[0]).elements
        sums.add({OpClass.FLOAT: float(held * product.k)})


def _read(values: Values, node: Node) -> _Product | None:
    kinds = [values.kind(value) for value in node.operands]
    scaled = "scaled" in node.name
    shaped = [kind for kind in kinds if len(kind.shape) >= 2]
    if len(shaped) < 3:
        return None
    left, right, result = shaped[:3]
    if node.results and values.kind(node.results[0]).shape:
        result = values.kind(node.results[0])
    *batch, m, n = result.shape
    k = left.shape[-1]
    if scaled and left.bits == 8 and "lhs = e2m1" in node.text:
        k *= 2
    return _Product(math.prod(batch), m, n, k, left, right, result)


def _wgmma(sums: Sums, values: Values, product: _Product) -> None:
    """Count wgmma: one a warpgroup for 64 rows, the layout's N columns, 256 bits of K."""
    encoding = product.result.encoding
    warps, tile = numbers(encoding, "warpsPerCTA"), numbers(encoding, "instrShape")
    columns = min(tile[1], product.n)
    rows = -(-product.m // (16 * warps[0]))
    across = -(-product.n // (columns * warps[1]))
    count = rows * across * -(-product.k // product.k_step)
    groups = max(1, values.num_warps // _WARPGROUP)
    from_registers = product.left.role == "tensor"
    read = (0 if from_registers else 64) + columns
    sums.add({OpClass.TENSOR: float(count), OpClass.ASYNC_WAIT: 3.0, OpClass.SHUFFLE: 1.0})
    # Each part of an operand in shared memory is given a descriptor, made of its address.
    described = count / rows + (0 if from_registers else count / across)
    sums.add({OpClass.CONVERT: 0.7, OpClass.LOGIC: 0.7, OpClass.INTEGER: 0.4}, described)
    sums.add({OpClass.INTEGER: 3.0, OpClass.LOGIC: 1.0})
    sums.flops["wgmma", product.operand] += count * 2 * 64 * columns * product.k_step * groups
    sums.operand_bytes += count * read * ROW_BYTES * groups


def _mma_sync(sums: Sums, values: Values, product: _Product, passes: int) -> None:
    """Count mma.sync: m16n8 for each warp, 256 bits of K; m8n8k4 for f64."""
    double = product.left.bits == 64
    m, n, k = (8, 8, 4) if double else (16, 8, product.k_step)
    warps = numbers(product.result.encoding, "warpsPerCTA")
    rows = max(1, -(-product.m // (m * warps[-2])))
    across = max(1, -(-product.n // (n * warps[-1])))
    batch = max(1, product.batch // math.prod(warps[:-2]))
    count = passes * batch * rows * across * max(1, product.k // k)
    sums.add({OpClass.TENSOR: float(count)})
    sums.flops["mma.sync", product.operand] += count * 2 * m * n * k * values.num_warps


def _tcgen05(sums: Sums, product: _Product) -> None:
    """Count tcgen05.mma: one thread issues it, at most 128 rows and 256 columns at once."""
    rows, columns = min(product.m, 128), min(product.n, 256)
    count = -(-product.m // rows) * -(-product.n // columns) * -(-product.k // product.k_step)
    in_tensor_memory = "tensor_memory" in product.left.encoding
    read = (0 if in_tensor_memory else rows) + columns
    sums.add({OpClass.TENSOR: float(count), OpClass.ASYNC_WAIT: 1.0, OpClass.BRANCH: 1.0})
    sums.flops["tcgen05", product.operand] += product.flops
    sums.operand_bytes += count * read * ROW_BYTES
