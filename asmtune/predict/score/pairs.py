"""The order among the best ranked: a forest that predicts how far one config is behind another.

The slowdown of a config against its task's best carries the errors that all configs of the task
share. A pair of near ties does not: what differs between them is often one of `num_stages`,
`num_warps`, `maxnreg` or a tile, and the forest is fitted on such differences alone. A config's
place is the mean over all pairs with the others of the best ranked.

Ranked by pairs as well, 310 recorded tasks of 80 kernels (an H200, each kernel unseen in four
parts, half of the rows fitted) kept 0.965 and 0.924 of the best speed at the first pick (the 6
kernels of the oracle, 74 others); by slowdowns alone 0.952 and 0.916.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from asmtune.predict.score.examples import TaskRows
from asmtune.predict.score.forest import Forest, Growth
from asmtune.predict.score.vectors import MICROSECONDS, Scale

BEST_RANKED: Final = 40
"""Configs of a ranking that are compared pair by pair: 20 kept as much of the six kernels, less of
others. They take 1,560 predictions, some tens of milliseconds."""

SHARE: Final = 0.7
"""Share of the pairs' order in a score; the rest is the ranking before. 1 kept less of families."""

NEAR: Final = 0.5
"""Logarithm of the slowdown up to which configs are paired for the fit."""

PAIRS_OF_A_TASK: Final = 160
GROWTH: Final = Growth(trees=32, least_in_leaf=5, columns_tried=0.33)

PAIRS: Final = (NEAR, PAIRS_OF_A_TASK, GROWTH)
"""Everything beside the rows that a fit depends on."""


def fit_pairs(tasks: Sequence[TaskRows], jobs: int, identity: str) -> Forest | None:
    """Fit a forest on pairs of near ties; None if no task has any."""
    draws = np.random.default_rng(0)
    rows, behind = [], []
    for task in tasks:
        near = np.flatnonzero(task.slowdown < NEAR)
        one, other = draws.choice(near, (2, PAIRS_OF_A_TASK))
        one, other = one[one != other], other[one != other]
        rows.append(_columns(task.base, task.scale, one, other))
        behind.append(task.slowdown[one] - task.slowdown[other])
    if not sum(map(len, behind)):
        return None
    columns, values = np.concatenate(rows), np.concatenate(behind)
    return Forest.fit(columns, values, GROWTH, jobs=jobs, identity=identity)


def columns_of_pairs(base_columns: int) -> int:
    """Return how many columns a pair has, for configs of a number of base columns."""
    return 2 * base_columns + MICROSECONDS


def reordered(
    forest: Forest, base: NDArray[np.float32], scale: Scale, scores: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the scores of a ranking, those of the best ranked moved by their pairs.

    Args:
        forest: what `fit_pairs` returned.
        base: `vectors.base_columns` of all candidates.
        scale: of all candidates.
        scores: higher is better; differences are logarithms of times.
    """
    best = np.argsort(-scores, kind="stable")[:BEST_RANKED]
    count = len(best)
    one, other = np.nonzero(~np.eye(count, dtype=np.bool_))
    behind = np.zeros((count, count))
    behind[one, other] = forest.predict(_columns(base, scale, best[one], best[other]))
    # Each pair is asked both ways, and the answers differ in more than their sign. The sum is twice
    # the logarithm: the scores exaggerate as well.
    ahead = (behind.T - behind).mean(axis=1)
    moved = scores.copy()
    moved[best] += SHARE * (scores[best].mean() + ahead - scores[best])
    return moved


def _columns(
    base: NDArray[np.float32], scale: Scale, one: NDArray[np.intp], other: NDArray[np.intp]
) -> NDArray[np.float32]:
    """Return a row a pair: its difference, and where its middle lies in the task and at all."""
    middle = (base[one] + base[other]) / 2
    parts = (base[one] - base[other], middle - scale.median, middle[:, :MICROSECONDS])
    return np.hstack(parts).astype(np.float32)
