"""The model's first pick: the config that ranks first, with nothing timed.

What it costs is mostly sketches: on two cores 24 configs of a matrix product take 2.5 s with
the start of the workers, and 576 take 32 s, 52 ms each. That a problem is not small is known in
20 us by its bytes, and after one sketch by the default's time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.ir_overrides import unedited
from asmtune.core.problem import Problem
from asmtune.core.records.verdicts import Verdict
from asmtune.core.space.space import Space
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.keep import Keep
from asmtune.predict.score.roofline import LAUNCH_US, dram_rate
from asmtune.predict.score.scorers import make_scorer

COMPILES: Final = 4
"""Of the best by their sketches, how many are compiled, so that the pick is one that compiles
and is ranked by its machine code."""

SAMPLE: Final = 24
"""Of a larger space, how many configs are sketched for a problem that may be small: what the
rest could gain is less than a launch costs, and each takes a sketch."""

SURELY: Final = 4.0
"""Of what a limit leaves above the least time of any launch, how many times that the default may
take for a problem to be looked into further: no pick is expected to be so much faster."""


def first_pick(funnel: Funnel, problem: Problem, space: Space) -> Verdict:
    """What ranks first of a space: all sketched, the few best compiled, none timed.

    Args:
        funnel: for the device; what it sketches and compiles stays known to it.
        problem: the launch.
        space: the configs.

    Raises:
        SpaceError: the space has no feasible point, or names what is not there.
        ProblemError: the configs do not fit the kernel.
        CompileError: none of those that were compiled can run.
        StoreError: the artifacts' folder cannot be written.
    """
    budget = None
    if funnel.scorer.ranks_before_compiling:
        budget = Keep(count=COMPILES, option="compile")
    # What was edited by hand is launched only where its output was checked.
    checked = unedited(space)
    report = replace(funnel, keep=None, caps=False, compile=budget).prune(problem, checked)
    return report.verdicts[0]


def small_pick(
    funnel: Funnel, problem: Problem, space: Space, limit_us: float | None
) -> Verdict | None:
    """The pick of a problem that is predicted to run for less time than a limit; else None.

    The cheapest look comes first: bytes, then the default's sketch, then `SAMPLE` configs.
    The roofline ranks, since `learned` takes seconds to load or to fit.

    Args:
        funnel: as `first_pick` takes it.
        problem: the launch.
        space: the configs; the default and others evenly from first to last are sketched.
        limit_us: microseconds; None for a problem that is small whatever is predicted.

    Raises:
        SpaceError: as `first_pick`.
        ProblemError: as `first_pick`.
        CompileError: as `first_pick`.
        StoreError: as `first_pick`.
    """
    quick = replace(funnel, scorer=make_scorer("roofline"))
    if limit_us is not None:
        if bytes_us(problem, funnel.target) >= limit_us:
            return None
        default = unedited(space).first(**problem.shape)
        sketched = quick.front(problem).verdicts([default], "sketch", quick.sketches)
        predicted_us = sketched[0].predicted_us
        most_us = LAUNCH_US + SURELY * (limit_us - LAUNCH_US)
        if predicted_us is None or predicted_us >= most_us:
            return None
    pick = first_pick(quick, problem, Space.from_configs(_sample(problem, unedited(space))))
    if limit_us is None or (pick.predicted_us is not None and pick.predicted_us < limit_us):
        return pick
    return None


def bytes_us(problem: Problem, target: Target) -> float:
    """Microseconds in which a launch can move all of its tensors once; tells at once, not surely.

    A kernel that reads only some of a tensor is faster.
    """
    nbytes = sum(problem.tensor_bytes.values())
    return float(LAUNCH_US + nbytes / dram_rate(target) * 1e6)


def _sample(problem: Problem, space: Space) -> list[Config]:
    """The default, and at most as many others as `SAMPLE` leaves, evenly from first to last."""
    default = space.first(**problem.shape)
    others = [config for config in space.configs(**problem.shape) if config != default]
    most = SAMPLE - 1
    if len(others) > most:
        others = [others[(index * len(others)) // most] for index in range(most)]
    return [default, *others]
