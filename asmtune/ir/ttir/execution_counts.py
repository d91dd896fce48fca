"""What an evaluation is given and what it counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from asmtune.ir.ttir.plan import EvaluationPlan
from asmtune.ir.ttir.scalars import Unknown, Value
from asmtune.ir.ttir.tree import Node

DEFAULT_TRIPS: Final = 16
"""Trips assumed for a loop whose bound is not known, such as one loaded from memory."""

DEFAULT_STEP: Final = 64
"""Step at which such a loop takes as many trips; one in steps of 128 takes half of them."""


@dataclass(slots=True)
class ExecutionCounts:
    """What the programs evaluated so far add up to.

    Attributes:
        runs: for each block, how often it ran.
        entries, trips: for each loop, how often it was entered and its trips in all.
        least, most: for each loop, the fewest and most trips of one entry; -1 if never entered.
        unknown: for each node that could not be evaluated, why.
        capped: loops of which only some trips were walked.
    """

    runs: list[float]
    entries: list[float]
    trips: list[float]
    least: list[int]
    most: list[int]
    unknown: dict[int, tuple[Node, Unknown]] = field(default_factory=dict)
    capped: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, plan: EvaluationPlan) -> ExecutionCounts:
        """An empty tally for a kernel."""
        bodies, loops = len(plan.tree.bodies), len(plan.tree.loops)
        return cls([0.0] * bodies, [0.0] * loops, [0.0] * loops, [-1] * loops, [-1] * loops)

    def enter(self, loop: int, trips: int, weight: float) -> None:
        """Note one entry of a loop."""
        self.entries[loop] += weight
        self.trips[loop] += weight * trips
        self.most[loop] = max(self.most[loop], trips)
        self.least[loop] = trips if self.least[loop] < 0 else min(self.least[loop], trips)


@dataclass(frozen=True, slots=True)
class ProgramArguments:
    """What the programs of a launch are given.

    Attributes:
        values: known arguments by position in the kernel's parameters.
        grid: programs along three axes.
        default_trips: trips of a loop that cannot be evaluated.
    """

    values: Mapping[int, Value]
    grid: tuple[int, int, int]
    default_trips: int = DEFAULT_TRIPS
