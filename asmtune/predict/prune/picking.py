"""The model's first pick: the config that ranks first before anything is timed.

Sketches are most of the cost: on two cores 24 configs of a matrix product take 2.5 s with the
start of the workers, and each further one 52 ms, for 100 of a large space.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from asmtune.core.config import Config
from asmtune.core.ir_overrides import unedited
from asmtune.core.problem import Problem
from asmtune.core.records.verdicts import PruneReport, Verdict
from asmtune.core.space.space import Space
from asmtune.predict.features.sketch.reader import can_sketch
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.keep import Keep

COMPILES: Final = 4
"""The best configs by sketch that are compiled, so that the pick compiles and is ranked by its
machine code."""

SAMPLE: Final = 24
"""Configs that are compiled where no sketch can be read."""


def first_pick(funnel: Funnel, problem: Problem, space: Space) -> Verdict:
    """Return the verdict that ranks first: sketches choose, the best few are compiled, none timed.

    The funnel keeps the sketches and compiles that it makes.

    Raises:
        SpaceError: the space has no feasible point, or names what is not there.
        ProblemError: the configs do not fit the kernel.
        CompileError: none of the compiled configs can run.
        StoreError: the artifacts' folder cannot be written.
    """
    # A hand-edited config is launched only after its output was checked.
    return pick_report(funnel, problem, unedited(space)).verdicts[0]


def pick_report(funnel: Funnel, problem: Problem, space: Space) -> PruneReport:
    """Return the report that a pick is read off: all sketched, the best few compiled.

    For a target whose TTGIR no sketch reads, `SAMPLE` configs are compiled. It raises what
    `first_pick` does.
    """
    budget = None
    if not can_sketch(funnel.target):
        space = Space.from_configs(_sample(problem, space))
    elif funnel.scorer.ranks_before_compiling:
        budget = Keep(count=COMPILES, option="compile")
    return replace(funnel, keep=None, compile=budget).prune(problem, space)


def _sample(problem: Problem, space: Space) -> list[Config]:
    """Return the default and at most `SAMPLE` - 1 others, evenly from first to last."""
    default = space.first(**problem.shape)
    points = space.points(**problem.shape).led_by(default)
    others, most = len(points) - 1, SAMPLE - 1
    if others <= most:
        return list(points)
    return [default, *(points[1 + (index * others) // most] for index in range(most))]
