"""Operations of TTGIR whose cost does not depend on a layout, and those that cost nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from asmtune.ir.asm.nvptx import OpClass

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


MEETING: Final = frozenset(
    {"ttg.async_wait", "gpu.barrier", "ttg.barrier", "ttg.local_barrier",
     "ttng.arrive_barrier", "ttng.async_tma_store_wait"}
)  # fmt: skip
"""Operations with a barrier of all warps."""
