"""The model's first pick: the config that ranks first before anything is timed.

Sketches are most of the cost: on two cores 24 configs of a matrix product take 2.5 s with the
start of the workers, and each further one 52 ms, for 100 of a large space. The bytes of a problem
tell in 20 us that it is not small; so does the default's predicted time, after one sketch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.ir_overrides import unedited
from asmtune.core.problem import Problem
from asmtune.core.records.verdicts import PruneReport, Verdict
from asmtune.core.space.space import Space
from asmtune.predict.features.sketch.reader import can_sketch
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.keep import Keep
from asmtune.predict.score.roofline import LAUNCH_US, dram_rate
from asmtune.predict.score.scorers import make_scorer

COMPILES: Final = 4
"""The best configs by sketch that are compiled, so that the pick compiles and is ranked by its
machine code."""

SAMPLE: Final = 24
"""Configs of a larger space that are sketched for a problem that may be small: the rest could
gain less than a launch costs, and each costs a sketch."""

SURELY: Final = 4.0
"""Skip a problem as not small if its default is predicted above LAUNCH_US + 4 x (limit -
LAUNCH_US): no pick is expected to be four times as fast."""


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
    return replace(funnel, keep=None, caps=False, compile=budget).prune(problem, space)


def small_pick(
    funnel: Funnel, problem: Problem, space: Space, limit_us: float | None
) -> Verdict | None:
    """Return the pick of a problem predicted to run for less time than a limit, else None.

    The cheapest test comes first: bytes, then the default's sketch, then `SAMPLE` configs.
    The roofline ranks, since `learned` takes seconds to load or to fit. It raises what
    `first_pick` does.

    Args:
        funnel: as `first_pick` takes it.
        problem: the launch.
        space: the configs; the default and others evenly from first to last are sketched.
        limit_us: microseconds; None for a problem that is small whatever is predicted.
    """
    quick = replace(funnel, scorer=make_scorer("roofline"))
    if limit_us is not None:
        if bytes_us(problem, funnel.target) >= limit_us:
            return None
        default = unedited(space).first(**problem.shape)
        front = quick.front(problem)
        if can_sketch(funnel.target):
            (own,) = front.verdicts([default], "sketch", quick.sketches)
        else:
            (own,) = front.verdicts([default], "assembly", quick.known)
        predicted_us = own.predicted_us
        most_us = LAUNCH_US + SURELY * (limit_us - LAUNCH_US)
        if predicted_us is None or predicted_us >= most_us:
            return None
    pick = first_pick(quick, problem, Space.from_configs(_sample(problem, unedited(space))))
    if limit_us is None or (pick.predicted_us is not None and pick.predicted_us < limit_us):
        return pick
    return None


def bytes_us(problem: Problem, target: Target) -> float:
    """Return the microseconds in which a launch can move all of its tensors once: a cheap estimate.

    A kernel that reads only some of a tensor is faster.
    """
    nbytes = sum(problem.tensor_bytes.values())
    return float(LAUNCH_US + nbytes / dram_rate(target) * 1e6)


def _sample(problem: Problem, space: Space) -> list[Config]:
    """Return the default and at most `SAMPLE` - 1 others, evenly from first to last."""
    default = space.first(**problem.shape)
    points = space.points(**problem.shape).led_by(default)
    others, most = len(points) - 1, SAMPLE - 1
    if others <= most:
        return list(points)
    return [default, *(points[1 + (index * others) // most] for index in range(most))]
