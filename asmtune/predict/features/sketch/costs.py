"""PTX instructions of TTGIR operations by class: for one element, or fixed.

Counted as `asmtune.ir.asm.nvptx` classes them; after what Triton's lowering and LLVM's
NVPTX back end emit for sm_80 to sm_120, read off their PTX.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from asmtune.ir.asm.nvptx import OpClass
from asmtune.ir.ttir.tree import Node
from asmtune.predict.features.sketch.values import Kind

Cost = Mapping[OpClass, float]

_I, _L, _F = OpClass.INTEGER, OpClass.LOGIC, OpClass.FLOAT
_C, _S, _M = OpClass.CONVERT, OpClass.SPECIAL, OpClass.MOVE

DEFAULT: Final[Cost] = {_I: 1.0}
"""Cost of an unknown element-wise operation."""

_PLAIN: Final[Mapping[str, OpClass]] = {
    **dict.fromkeys(
        ("addi", "subi", "muli", "shli", "shrsi", "shrui", "minsi", "maxsi", "minui", "maxui"), _I
    ),
    **dict.fromkeys(("divsi", "divui", "remsi", "remui", "ceildivsi", "floordivsi"), _I),
    **dict.fromkeys(("andi", "ori", "xori", "cmpi", "cmpf", "select"), _L),
    **dict.fromkeys(
        ("addf", "subf", "mulf", "negf", "maxnumf", "minnumf", "maximumf", "minimumf"), _F
    ),
    **dict.fromkeys(("sitofp", "uitofp", "fptosi", "fptoui"), _C),
}

_MATH: Final[Mapping[str, Cost]] = {
    "math.exp2": {_S: 1},
    "math.exp": {_S: 1, _F: 1},
    "math.log2": {_S: 1, _F: 2, _L: 2},
    "math.log": {_F: 14, _I: 3, _L: 4, _C: 1},
    "math.rsqrt": {_S: 1},
    "math.sqrt": {_S: 1},
    "math.sin": {_F: 16, _I: 6, _L: 8, _C: 2},
    "math.cos": {_F: 16, _I: 6, _L: 8, _C: 2},
    "math.erf": {_F: 14, _L: 9, _S: 1},
    "math.fma": {_F: 1},
    "math.absf": {_F: 1},
    "math.absi": {_I: 1},
    "math.floor": {_C: 1},
    "math.ceil": {_C: 1},
    "math.tanh": {_F: 12, _S: 2, _L: 3},
}
_SAME: Final = frozenset(
    {"arith.constant", "arith.bitcast", "tt.bitcast", "tt.int_to_ptr", "tt.ptr_to_int"}
)
_EXTERN: Final[Cost] = {_F: 12, _S: 1, _L: 4}
"""Cost of a function of libdevice, or of a `math` operation that is not listed."""


def element_cost(node: Node, result: Kind, operand: Kind) -> Cost:
    """Return an element-wise operation's instructions for one element, or for a scalar.

    The types are those of its result and of its first operand.
    """
    name = node.name
    if name.startswith("math.") or name == "tt.extern_elementwise":
        return _MATH.get(name, _EXTERN)
    if name in ("arith.extf", "arith.truncf", "tt.fp_to_fp"):
        return _between_floats(result, operand)
    if name in ("arith.divf", "tt.precise_divf", "tt.precise_sqrt"):
        return {_S: 1.0} if result.bits >= 32 else {_S: 1.0, _C: 2.0}
    if name == "arith.remf":
        return {_S: 1.0, _F: 3.0, _C: 1.0}
    if name in ("arith.extsi", "arith.extui", "arith.trunci"):
        return _between_integers(result, operand)
    if name in _SAME:
        return {}
    if name == "tt.elementwise_inline_asm":
        return {_I: float(max(1, node.text.count(";")))}
    kind = _PLAIN.get(name.removeprefix("arith."))
    return DEFAULT if kind is None else {kind: 1.0}


def _between_floats(result: Kind, operand: Kind) -> Cost:
    """Cost a conversion: two 16-bit values are converted at once and taken apart by moves."""
    if min(result.bits, operand.bits) <= 8:
        return {_C: 0.5, _M: 0.5} if 16 in (result.bits, operand.bits) else {_C: 1.0}
    if result.bits < operand.bits:
        return {_C: 0.5}
    return {_C: 1.0, _M: 0.5}


def _between_integers(result: Kind, operand: Kind) -> Cost:
    if result.bits == 64 or operand.bits == 64 or operand.bits < 32:
        return {_C: 1.0}
    return {}


FREE: Final = frozenset(
    {"tt.splat", "tt.unsplat", "tt.broadcast", "tt.expand_dims", "tt.make_range", "tt.reshape",
     "tt.trans", "tt.join", "tt.split", "tt.cat", "scf.yield", "tt.return", "ttg.memdesc_trans",
     "ttg.memdesc_subslice", "ttg.memdesc_reshape", "ttg.memdesc_reinterpret",
     "ttg.local_dealloc", "ub.poison", "tt.reduce.return", "tt.scan.return", "ttg.warp_yield",
     "ttg.warp_return", "llvm.intr.assume", "default", "asmtune.partition",
     "ttg.warp_specialize", "ttng.warp_group_dot_wait", "arith.constant"}
)  # fmt: skip
FIXED: Final[Mapping[str, Mapping[OpClass, float]]] = {
    "ttg.async_commit_group": {OpClass.ASYNC_WAIT: 1.0},
    "ttg.async_wait": {OpClass.ASYNC_WAIT: 1.0},
    "ttng.fence_async_shared": {OpClass.FENCE: 1.0},
    "ttng.wait_barrier": {OpClass.MBARRIER: 1.0, OpClass.BRANCH: 1.0},
    "ttng.arrive_barrier": {OpClass.MBARRIER: 1.0},
    "ttng.init_barrier": {OpClass.MBARRIER: 1.0},
    "ttng.inval_barrier": {OpClass.MBARRIER: 1.0},
    "ttng.barrier_expect": {OpClass.MBARRIER: 1.0},
    "ttng.async_tma_copy_global_to_local": {OpClass.BULK_COPY: 1.0, OpClass.SHUFFLE: 1.0},
    "ttng.async_tma_copy_local_to_global": {OpClass.BULK_COPY: 1.0, OpClass.ASYNC_WAIT: 1.0},
    "ttng.async_tma_store_wait": {OpClass.ASYNC_WAIT: 1.0},
    "tt.get_program_id": {OpClass.MOVE: 1.0},
    "gpu.barrier": {},
    "ttg.barrier": {},
    "ttg.local_barrier": {},
    "ttg.memdesc_index": {OpClass.INTEGER: 2.0},
    "scf.for": {OpClass.BRANCH: 1.0, OpClass.LOGIC: 1.0, OpClass.INTEGER: 1.0},
    "scf.while": {OpClass.BRANCH: 1.0},
    "scf.if": {OpClass.BRANCH: 1.0},
    "cf.br": {OpClass.BRANCH: 1.0},
    "cf.cond_br": {OpClass.BRANCH: 1.0},
}  # fmt: skip


BARRIER_OPERATIONS: Final = frozenset(
    {"ttg.async_wait", "gpu.barrier", "ttg.barrier", "ttg.local_barrier",
     "ttng.arrive_barrier", "ttng.async_tma_store_wait"}
)  # fmt: skip
"""Operations with a barrier of all warps."""
