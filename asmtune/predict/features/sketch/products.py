"""Matrix products of TTGIR: tensor instructions, their FLOPs and their reads of shared memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from asmtune.ir.asm.nvptx import OpClass
from asmtune.ir.ttir.tree import Node
from asmtune.predict.features.profile import ROW_BYTES
from asmtune.predict.features.sketch.layouts import kind_of, number, numbers
from asmtune.predict.features.sketch.sums import Sums
from asmtune.predict.features.sketch.values import Kind, Values

PRODUCTS: Final = frozenset(
    {"tt.dot", "tt.dot_scaled", "ttng.warp_group_dot", "ttng.tc_gen5_mma",
     "ttng.tc_gen5_mma_scaled"}
)  # fmt: skip
"""Operations that multiply matrices."""

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
        """PTX's name of the operands' type; e2m1 for two 4-bit numbers a byte."""
        return _PTX_TYPES.get(self.left.element, self.left.element)

    @property
    def k_step(self) -> int:
        return max(1, _K_BITS // max(1, self.left.bits))


def add_product(sums: Sums, values: Values, node: Node) -> None:
    """Counts one product, by the tensor instruction that the result's layout is of."""
    product = _read(values, node)
    if product is None:
        return
    if node.name.startswith("ttng.tc_gen5"):
        _tcgen05(sums, product)
    elif kind_of(product.result.encoding) == "nvidia_mma":
        if number(product.result.encoding, "versionMajor", 2) == 3:
            _wgmma(sums, values, product)
        else:
            _mma_sync(sums, values, product, _passes(node, product))
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


def _passes(node: Node, product: _Product) -> int:
    """Return how many products of lower precision make one of 32-bit floats."""
    if product.left.bits != 32:
        return 1
    return 3 if "tf32x3" in node.text else 1


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
