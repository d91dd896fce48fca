"""Describe a kernel's loops, and what about its control could not be evaluated."""

from __future__ import annotations

import re
from typing import Final

from asmtune.ir.ttir.assumptions import Doubt
from asmtune.ir.ttir.execution_counts import ExecutionCounts, ProgramArguments
from asmtune.ir.ttir.memory import KINDS
from asmtune.ir.ttir.persistent import carried_tensors
from asmtune.ir.ttir.plan import EvaluationPlan
from asmtune.ir.ttir.tree import LOOPS, Node
from asmtune.ir.ttir.work import LoopWork

_STAGES: Final = re.compile(r"tt\.num_stages = (\d{1,4})").search

_UNROLL: Final = re.compile(r"tt\.loop_unroll_factor = (\d{1,4})").search


def describe_loops(
    plan: EvaluationPlan, tally: ExecutionCounts, evaluated: int
) -> tuple[LoopWork, ...]:
    """Every loop with its counts.

    Args:
        plan: the kernel.
        tally: what was counted.
        evaluated: over how many programs.
    """
    dots, stores = _containing(plan)
    unknown = {node.loop: reason for node, reason in tally.unknown.values() if node.loop >= 0}
    found: list[LoopWork] = []
    for node in plan.tree.loops:
        loop = node.loop
        parent = plan.tree.enclosing_loop(node.body)
        file, line = plan.tree.line_of(node) or ("", 0)
        stages = _STAGES(node.text)
        unroll = _UNROLL(node.text)
        entries = tally.entries[loop]
        found.append(
            LoopWork(
                id=loop,
                parent=parent,
                depth=1 if parent is None else found[parent].depth + 1,
                file=file,
                line=line,
                trips=tally.trips[loop] / entries if entries else 0.0,
                least=max(0, tally.least[loop]),
                most=max(0, tally.most[loop]),
                entries=entries / evaluated,
                num_stages=int(stages[1]) if stages else None,
                unroll_factor=int(unroll[1]) if unroll else None,
                warp_specialized="tt.warp_specialize" in node.text,
                is_while=node.name == "scf.while",
                has_dot=loop in dots,
                carries_tensor=bool(carried_tensors(plan, node)),
                stores=loop in stores,
                unknown=unknown[loop].reason if loop in unknown else "",
            )
        )
    return tuple(found)


def _containing(plan: EvaluationPlan) -> tuple[set[int], set[int]]:
    """Loops with matrix products in them, and loops that write memory."""
    dots: set[int] = set()
    stores: set[int] = set()
    for body in plan.tree.bodies:
        for node in body.nodes:
            if node.name.startswith("tt.dot"):
                dots |= _around(node)
            elif KINDS.get(node.name, "read") != "read":
                stores |= _around(node)
    return dots, stores


def _around(node: Node) -> set[int]:
    found: set[int] = set()
    owner = node.body.owner
    while owner is not None:
        if owner.name in LOOPS:
            found.add(owner.loop)
        owner = owner.body.owner
    return found


def describe_doubts(
    plan: EvaluationPlan, tally: ExecutionCounts, launch: ProgramArguments
) -> tuple[Doubt, ...]:
    """What decides about control and could not be evaluated."""
    found = []
    for node, reason in tally.unknown.values():
        file, line = plan.tree.line_of(node) or ("", 0)
        is_loop = node.loop >= 0
        loop = node.loop if is_loop else None
        entries = tally.entries[node.loop] if is_loop else 0.0
        trips = tally.trips[node.loop] / entries if entries else launch.default_trips
        count = "1 trip" if trips == 1 else f"{trips:.3g} trips"
        assumed = count if is_loop else "the side that does more"
        found.append(Doubt(node.name, loop, reason.reason, assumed, file, line))
    return tuple(found)
