"""A Gaussian process that predicts times of untimed configs, and the gain of timing them.

The logarithm of a config's time is taken as

    offset + SLOPE * predicted + g(predicted, place) + own

`predicted` is the logarithm of the slowdown that a scorer foresees, `g` a Gaussian process of
the scorer's error, which is alike for configs that lie near each other, and `own` what each
config has to itself. How large the errors are is learned on the way: few timings on a task
that is predicted well end the search sooner. The equations are those of Rasmussen and
Williams (Gaussian Processes for Machine Learning, 2006, algorithm 2.1), the scale's those of a
Student process (Shah, Wilson, Ghahramani, 2014), with its mean in the place of the Student.

The timings also say how far an error reaches. `Mixture` holds a process for each entry of
`REACHES`, weighted by how well it explains the timings so far. A scorer that misses what an axis
does errs in the same way for all configs of a value, though their features are alike. A process
of short reach on the axes says so, and the search goes on while a process with weight expects a
gain.

The constants are those of the greatest marginal likelihood on recorded tasks of 6 kernels (an
H200, `learned` without the kernel's rows), the deviations doubled: with so wide a prior a replay
of 39 tasks kept 0.9994 of the best speed, worst 0.994, for 118 compiles; as they were fitted
0.9973, worst 0.960, for 86. Places among the features carry it: by the axes alone 51 tasks kept
0.997, worst 0.94, in place of 0.9993 and 0.990. On 45 tasks of 12 kernels that had no part in
the fit, 40 timings of 133 kept 0.9997, worst 0.994; the 40 best predicted, 0.998 and 0.92.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]

OFFSET: Final = 3.0
"""Deviation of the offset: of times relative to the best so far, wide."""

SLOPE: Final = 0.45
"""True slowdown per predicted one, both logarithms: `learned` exaggerates."""

SLOPE_DEVIATION: Final = 0.34
ERROR_DEVIATION: Final = 0.54
"""Deviations of the slope, and of `g` (the error at one place)."""

OWN_DEVIATION: Final = 0.024
SKETCH_DEVIATION: Final = 0.05
"""Deviations of `own`: with the assembly known, and with a sketch only."""

NOISE: Final = 0.02
"""Deviation of a timing."""

PRIOR_WEIGHT: Final = 5.0
"""Timings that the prior deviations are worth against the errors seen."""

MOST_SCALE: Final = 25.0
"""Greatest factor of the variance over the prior's: errors five times as large."""


@dataclass(frozen=True)
class Points:
    """Configs as the Gaussian process sees them.

    Attributes:
        predicted: logarithm of the predicted slowdown, from 0 up.
        places: a row a config; a distance of 1 is far.
        compiled: True where the assembly is known.
        axes: number of the first columns of `places` that are axes; the rest are features.
        own: factor of the deviation of each config's own part.
    """

    predicted: Column
    places: Matrix
    compiled: NDArray[np.bool_]
    axes: int = 0
    own: float = 1.0

    def at(self, indices: Any) -> Points:
        """Return some of the points."""
        return replace(
            self,
            predicted=self.predicted[indices],
            places=self.places[indices],
            compiled=self.compiled[indices],
        )

    @property
    def own_variance(self) -> Column:
        """Return the variance of each config's own part."""
        deviation = np.where(self.compiled, OWN_DEVIATION, SKETCH_DEVIATION)
        return np.asarray((self.own * deviation) ** 2)

    @property
    def variance(self) -> Column:
        """Return the prior variance of each, without its own part."""
        return OFFSET**2 + ERROR_DEVIATION**2 + (SLOPE_DEVIATION * self.predicted) ** 2


@dataclass(frozen=True)
class Posterior:
    """Expected times and their standard deviations, as logarithms."""

    mean: Column
    deviation: Column


@dataclass(frozen=True)
class Reach:
    """Reach of the scorer's error: factors of distances, and of each config's own part."""

    axes: float = 1.0
    features: float = 1.0
    own: float = 1.0

    def applied(self, points: Points) -> Points:
        """Return points at the distances that a process of this reach sees."""
        factors = np.full(points.places.shape[1], self.features)
        factors[: points.axes] = self.axes
        return replace(points, places=points.places * factors, own=self.own)


REACHES: Final = tuple(
    Reach(axes, features, own)
    for axes in (1.0, 4.0, 10.0)
    for features in (1.0, 2.0)
    for own in (1.0, 3.0)
)
"""None reaches farther than the fitted constants, which are of kernels like the recorded ones."""


@dataclass(frozen=True)
class Surrogate:
    """A process fitted to timed configs, at least one, and the logarithms of their times."""

    timed: Points
    log_us: Column
    reach: Reach = field(default_factory=Reach)

    @cached_property
    def best(self) -> float:
        """Return the logarithm of the least time."""
        return float(self.log_us.min())

    def posterior(self, points: Points) -> Posterior:
        """Predict configs that were not timed, each alone."""
        points = self.reach.applied(points)
        cross = _covariance(points, self._timed)
        half = self._solve(cross.T)
        left = np.maximum(points.variance - np.sum(half * half, axis=0), 0.0)
        return Posterior(
            self.best + SLOPE * points.predicted + cross @ self._weights,
            np.sqrt(self._scale * (left + points.own_variance)),
        )

    def covariance(self, points: Points) -> Matrix:
        """Return the covariance among configs that were not timed."""
        points = self.reach.applied(points)
        half = self._solve(_covariance(self._timed, points))
        left = _covariance(points, points) - half.T @ half
        return np.asarray(self._scale * (left + np.diag(points.own_variance)))

    @cached_property
    def log_evidence(self) -> float:
        """Log likelihood of the times under this reach, up to a constant (a Student process)."""
        count, seen = len(self.log_us), float(self._half @ self._half)
        spread = float(np.log(np.diag(self._factor)).sum())
        return -spread - (PRIOR_WEIGHT + count) / 2.0 * float(np.log(PRIOR_WEIGHT + seen))

    @cached_property
    def _timed(self) -> Points:
        return self.reach.applied(self.timed)

    @cached_property
    def _residual(self) -> Column:
        return np.asarray(self.log_us - self.best - SLOPE * self.timed.predicted)

    @cached_property
    def _factor(self) -> Matrix:
        noise = self._timed.own_variance + NOISE**2
        shared = _covariance(self._timed, self._timed)
        return np.asarray(np.linalg.cholesky(shared + np.diag(noise)))

    def _solve(self, right: Matrix) -> Matrix:
        return np.asarray(np.linalg.solve(self._factor, right))

    @cached_property
    def _half(self) -> Column:
        return self._solve(self._residual)

    @cached_property
    def _weights(self) -> Column:
        return np.asarray(np.linalg.solve(self._factor.T, self._half))

    @cached_property
    def _scale(self) -> float:
        """Return the variance over the prior's, by the errors seen."""
        seen = float(self._half @ self._half)
        return min(MOST_SCALE, (PRIOR_WEIGHT + seen) / (PRIOR_WEIGHT + len(self.log_us)))


def _covariance(one: Points, other: Points) -> Matrix:
    """Compute the covariance of shared parts: offset, slope, error near a place (Matern, 3/2)."""
    slopes = SLOPE_DEVIATION**2 * np.outer(one.predicted, other.predicted)
    squares = np.sum(one.places**2, axis=1)[:, None] + np.sum(other.places**2, axis=1)[None, :]
    apart = np.sqrt(3.0 * np.maximum(squares - 2.0 * one.places @ other.places.T, 0.0))
    near = (1.0 + apart) * np.exp(-apart)
    return np.asarray(OFFSET**2 + slopes + ERROR_DEVIATION**2 * near)


DRAWS: Final = 512
"""Joint draws that the gain of a batch is averaged over: an error of some percent of it."""


_erfc: Final = np.frompyfunc(math.erfc, 1, 1)  # SciPy's takes 0.2 s to import


def improvement(posterior: Posterior, best: float) -> Column:
    """Compute the expected improvement of each config alone (Jones, Schonlau, Welch, 1998)."""
    deviation = np.maximum(posterior.deviation, 1e-9)
    ahead = (best - posterior.mean) / deviation
    density = np.exp(-ahead * ahead / 2.0) / np.sqrt(2.0 * np.pi)
    below = _erfc(-ahead / np.sqrt(2.0)).astype(np.float64) / 2.0
    return np.asarray(deviation * (ahead * below + density))


def spread_out(mean: Column, covariance: Matrix, best: float, count: int) -> list[int]:
    """Choose a batch by expected improvement, each config as if those before it were timed.

    Their times are taken to be the expected ones ("kriging believer", Ginsbourger et al.,
    2010): means stay, and what is like a chosen config is known better, so that a batch is no
    heap of near equals. Without it a replay kept 0.998 of the best speed in place of 0.999.
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
    """Compute the expected gain of timing a whole batch, over joint draws of its times."""
    values, vectors = np.linalg.eigh(covariance)
    draws: NDArray[np.float64] = np.random.default_rng(seed).standard_normal((DRAWS, len(mean)))
    times = mean + (draws * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return float(np.maximum(best - times.min(axis=1), 0.0).mean())


LEAST_WEIGHT: Final = 0.03
"""Processes that explain the timings worse are left out of a mixture: they cost time."""


@dataclass(frozen=True)
class Mixture:
    """Processes of several reaches, and their weights by the timings so far."""

    parts: tuple[Surrogate, ...]
    weights: Column

    @classmethod
    def of(cls, timed: Points, log_us: Column) -> Mixture:
        """Fit a process of each reach to timed configs, at least one."""
        every = [Surrogate(timed, log_us, reach) for reach in REACHES]
        evidence = np.array([part.log_evidence for part in every])
        weights = np.exp(evidence - evidence.max())
        weights /= weights.sum()
        able = np.flatnonzero(weights >= LEAST_WEIGHT)
        return cls(tuple(every[i] for i in able), weights[able] / weights[able].sum())

    @property
    def best(self) -> float:
        """Return the logarithm of the least time."""
        return self.parts[0].best

    def improvement(self, points: Points) -> Column:
        """Compute the expected improvement of each config alone."""
        gains = [improvement(part.posterior(points), self.best) for part in self.parts]
        return np.asarray(self.weights @ np.stack(gains))

    def batch(self, points: Points, count: int, seed: int) -> tuple[list[int], float]:
        """Choose a batch; return its indices and the expected gain of timing it."""
        means = np.stack([part.posterior(points).mean for part in self.parts])
        covariances = np.stack([part.covariance(points) for part in self.parts])
        mean = self.weights @ means
        apart = means - mean
        among = np.tensordot(self.weights, covariances, 1) + (self.weights * apart.T) @ apart
        chosen = spread_out(mean, among, self.best, count)
        gains = [
            batch_gain(own[chosen], covariance[np.ix_(chosen, chosen)], self.best, seed)
            for own, covariance in zip(means, covariances, strict=True)
        ]
        return chosen, float(self.weights @ gains)
