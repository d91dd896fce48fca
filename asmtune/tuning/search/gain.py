"""What another timing, or another batch, is expected to gain over the best so far.

All times are logarithms, so that a gain of 0.01 is one percent.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from asmtune.tuning.search.surrogate import NOISE, Column, Matrix, Posterior

DRAWS: Final = 512
"""Joint draws that the gain of a batch is averaged over: an error of some percent of it."""


def improvement(belief: Posterior, best: float) -> Column:
    """Expected improvement of each config alone (Jones, Schonlau, Welch, 1998).

    Args:
        belief: of each config's time.
        best: of the times so far.
    """
    from scipy.special import ndtr

    deviation = np.maximum(belief.deviation, 1e-9)
    ahead = (best - belief.mean) / deviation
    density = np.exp(-ahead * ahead / 2.0) / np.sqrt(2.0 * np.pi)
    return np.asarray(deviation * (ahead * ndtr(ahead) + density))


def spread_out(mean: Column, covariance: Matrix, best: float, count: int) -> list[int]:
    """A batch by expected improvement, each choice made as if those before it were timed.

    Their times are taken to be the expected ones ("kriging believer", Ginsbourger et al.,
    2010): means stay, and what is like a chosen config is known better, so that a batch is no
    heap of near equals. Without it a replay kept 0.998 of the best speed in place of 0.999.

    Args:
        mean: of each config.
        covariance: among them.
        best: of the times so far.
        count: how many to choose at most.
    """
    variance = np.diag(covariance).copy()
    known = np.zeros((len(mean), 0))
    chosen: list[int] = []
    for _ in range(min(count, len(mean))):
        left = Posterior(mean, np.sqrt(np.maximum(variance, 0.0)))
        gains = improvement(left, best)
        gains[chosen] = -1.0
        pick = int(np.argmax(gains))
        chosen.append(pick)
        column = covariance[:, pick] - known @ known[pick]
        column /= np.sqrt(max(variance[pick], 0.0) + NOISE**2)
        known = np.column_stack([known, column])
        variance = variance - column * column
    return chosen


def batch_gain(mean: Column, covariance: Matrix, best: float, seed: int) -> float:
    """Expected gain of timing a whole batch, over joint draws of its times.

    Args:
        mean: of each config.
        covariance: among them.
        best: of the times so far.
        seed: of the draws; the same for equal draws.
    """
    values, vectors = np.linalg.eigh(covariance)
    draws: NDArray[np.float64] = np.random.default_rng(seed).standard_normal((DRAWS, len(mean)))
    times = mean + (draws * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return float(np.maximum(best - times.min(axis=1), 0.0).mean())
