"""The chain of latencies of a segment, at the grain of TTGIR's operations.

Each operation is one step, as `asmtune.predict.features.chain` walks them: what it reads and
writes are values of the text, and a tile's elements follow each other so closely that
the latency of one is that of all. Loops hand their values from one trip to the next.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

from asmtune.core.hardware.model import L2_BYTES_PER_CYCLE, Target, tensor_rate
from asmtune.ir.asm.nvptx import OpClass
from asmtune.ir.ttir.tree import Node
from asmtune.predict.features.sketch.layouts import WARP
from asmtune.predict.features.sketch.products import PRODUCTS
from asmtune.predict.features.sketch.sums import Sums
from asmtune.predict.features.steps import (
    BARRIER_LATENCY,
    COPY_LATENCY,
    LATENCY,
    Action,
    InstructionStep,
)

_ACTIONS: Final[Mapping[str, tuple[Action, ...]]] = {
    "tt.load": (Action.GLOBAL_LOAD,),
    "tt.store": (Action.GLOBAL_STORE,),
    "tt.atomic_rmw": (Action.ATOMIC,),
    "tt.atomic_cas": (Action.ATOMIC,),
    "ttg.async_copy_global_to_local": (Action.COPY,),
    "ttg.async_commit_group": (Action.COPY_COMMIT,),
    "ttg.async_wait": (Action.COPY_WAIT,),
    "ttg.local_load": (Action.SHARED,),
    "ttg.local_store": (Action.SHARED,),
    "ttg.local_alloc": (Action.SHARED,),
    "ttg.convert_layout": (Action.SHARED, Action.SHARED),
    "ttng.warp_group_dot": (Action.PRODUCT, Action.PRODUCT_COMMIT),
    "ttng.warp_group_dot_wait": (Action.PRODUCT_WAIT,),
    "ttng.tc_gen5_mma": (Action.PRODUCT, Action.PRODUCT_COMMIT),
    "ttng.tc_gen5_mma_scaled": (Action.PRODUCT, Action.PRODUCT_COMMIT),
    "ttng.async_tma_copy_global_to_local": (Action.BULK,),
    "ttng.wait_barrier": (Action.BULK_WAIT,),
}
_STILL: Final = re.compile(r"(?:num|pendings) = (\d+)").search
_LINKED: Final = frozenset(
    {Action.GLOBAL_LOAD, Action.GLOBAL_STORE, Action.ATOMIC, Action.COPY, Action.BULK}
)
_SILENT: Final = frozenset(
    {Action.COPY, Action.COPY_COMMIT, Action.COPY_WAIT, Action.BULK, Action.BULK_WAIT}
)
_LATENT: Final[Mapping[Action, float]] = {
    Action.GLOBAL_LOAD: LATENCY[OpClass.GLOBAL],
    Action.GLOBAL_STORE: LATENCY[OpClass.GLOBAL],
    Action.ATOMIC: LATENCY[OpClass.ATOMIC],
    Action.SHARED: LATENCY[OpClass.SHARED],
    Action.COPY: COPY_LATENCY,
    Action.BULK: COPY_LATENCY,
    Action.MMA: LATENCY[OpClass.TENSOR],
}


class StepMaker:
    """Makes the steps of operations for one target.

    Args:
        target: the machine.
        warps: that run an operation together.
    """

    def __init__(self, target: Target, warps: int) -> None:
        self._target = target
        self._threads = warps * WARP

    def steps(self, node: Node, before: Sums, after: Sums) -> list[InstructionStep]:
        """The steps of one operation.

        Args:
            node: the operation.
            before: its segment without it.
            after: its segment with it.
        """
        reads, writes = tuple(map(str, node.operands)), tuple(map(str, node.results))
        actions = _ACTIONS.get(node.name, (Action.COMPUTE,))
        if node.name in PRODUCTS and node.name == "tt.dot":
            multiplied = after.flops != before.flops
            actions = (Action.MMA,) if multiplied else (Action.COMPUTE,)
        elif actions[0] is Action.SHARED and after.traffic == before.traffic:
            actions = (Action.COMPUTE,)
        if actions[0] in _SILENT:
            # Others wait for groups of them, and not for their tokens.
            reads, writes = (reads, ()) if actions[0] is Action.COPY else ((), ())
        if actions == (Action.COMPUTE,):
            return [
                InstructionStep(Action.COMPUTE, reads, writes, self._computing(node, before, after))
            ]
        still = _STILL(node.text)
        made = []
        for action in actions:
            busy = self._busy(action, before, after)
            latency = _LATENT.get(action, 0.0)
            made.append(
                InstructionStep(action, reads, writes, latency, busy, int(still[1]) if still else 0)
            )
        return made

    def _computing(self, node: Node, before: Sums, after: Sums) -> float:
        added = after.classes - before.classes
        if node.name in ("tt.reduce", "tt.scan"):
            words = 4.0 * math.sqrt(max(0, added[OpClass.SHUFFLE]))
            own = min(added[OpClass.FLOAT] + added[OpClass.INTEGER], 64.0)
            chain = own * LATENCY[OpClass.FLOAT] + 5 * LATENCY[OpClass.SHUFFLE] + words
            return chain + added[OpClass.BARRIER] * (BARRIER_LATENCY + LATENCY[OpClass.SHARED])
        kinds = [kind for kind, number in added.items() if number > 0]
        once: float = sum(LATENCY.get(kind, 0.0) for kind in kinds)
        return once * _DEPTH.get(node.name, 1.0)

    def _busy(self, action: Action, before: Sums, after: Sums) -> float:
        if action in _LINKED:
            moved = after.traffic - before.traffic
            size = sum(traffic.bytes * number for traffic, number in moved.items())
            return size * self._threads / L2_BYTES_PER_CYCLE
        if action not in (Action.MMA, Action.PRODUCT):
            return 0.0
        cycles = 0.0
        for (kind, operand), flops in (after.flops - before.flops).items():
            idle = 4 * WARP / self._threads if kind == "mma.sync" else 1.0
            cycles += flops / tensor_rate(self._target, kind, operand) * max(1.0, idle)
        return cycles


_DEPTH: Final = {"math.erf": 8.0, "math.log": 6.0, "math.sin": 8.0, "math.cos": 8.0}
"""Operations that follow each other within one, where they are many."""


def handing_on(node: Node) -> list[InstructionStep]:
    """Steps that give a loop's next trip, and what comes after, the values of this one."""
    owner = node.body.owner
    if node.name != "scf.yield" or owner is None or owner.name != "scf.for":
        return []
    inside = owner.regions[0][0].arguments[1:]
    pairs = zip(node.operands, inside, strict=False)
    return [InstructionStep(Action.COMPUTE, (str(a),), (str(b),), 0.0) for a, b in pairs]
