"""The Gaussian process, and the gains that are expected from what it believes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asmtune.tuning.search import surrogate
from asmtune.tuning.search.surrogate import (
    Mixture,
    Points,
    Posterior,
    Surrogate,
    batch_gain,
    improvement,
    spread_out,
)


def points(predicted: list[float], places: list[list[float]], *, compiled: bool = True) -> Points:
    """Points by their values."""
    return Points(
        np.array(predicted), np.array(places, dtype=float), np.full(len(predicted), compiled)
    )


def line(count: int, *, slope: float = 0.0) -> Points:
    """Points on a line, predicted to be slower along it."""
    at = np.linspace(0.0, 1.0, count)
    return Points(slope * at, at[:, None], np.ones(count, dtype=bool))


def test_equations_against_a_library() -> None:
    """Mean and deviation are those of scikit-learn's process with the same kernel and scale."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    rng = np.random.default_rng(0)
    timed = Points(np.zeros(12), rng.uniform(0, 2, (12, 3)), np.ones(12, dtype=bool))
    asked = Points(np.zeros(5), rng.uniform(0, 2, (5, 3)), np.ones(5, dtype=bool))
    log_us = rng.normal(3.0, 0.3, 12)
    fitted = Surrogate(timed, log_us)
    own = surrogate.OWN_DEVIATION**2
    kernel = (
        ConstantKernel(surrogate.OFFSET**2)
        + ConstantKernel(surrogate.ERROR_DEVIATION**2) * Matern(1.0, nu=1.5)
        + WhiteKernel(own)
    )
    library = GaussianProcessRegressor(kernel, alpha=surrogate.NOISE**2, optimizer=None)
    library.fit(timed.places, log_us - log_us.min())
    mean, deviation = library.predict(asked.places, return_std=True)
    believed = fitted.posterior(asked)
    assert believed.mean == pytest.approx(mean + log_us.min())
    assert believed.deviation == pytest.approx(deviation * np.sqrt(fitted._scale))


def test_good_predictions_narrow_the_belief() -> None:
    """After as many timings, less is left unknown of a task that is predicted well."""
    timed, asked = line(20, slope=1.0), points([0.5], [[3.0]])
    exact = surrogate.SLOPE * timed.predicted
    wrong = exact + np.random.default_rng(0).normal(0.0, 0.2, 20)
    narrow = Surrogate(timed, exact).posterior(asked).deviation
    assert narrow < 0.7 * Surrogate(timed, wrong).posterior(asked).deviation


def on_an_axis(values: list[float]) -> Points:
    """Configs of equal features and predictions, at places on one axis."""
    places = np.array([[value, 0.0] for value in values])
    return Points(np.zeros(len(values)), places, np.ones(len(values), dtype=bool), axes=1)


def test_what_an_axis_does_is_learned() -> None:
    """Where values of an axis differ at equal features, an error reaches no other value."""
    timed = on_an_axis([0.0, 0.02, 0.04, 0.06, 0.08, 0.1] * 4)
    smooth, missed = np.zeros(24), np.array([0.1, 0.0, 0.2, 0.3, 0.02, 0.05] * 4)
    for log_us, reach in ((smooth, 1.0), (missed, 10.0)):
        assert {part.reach.axes for part in Mixture.of(timed, log_us).parts} == {reach}


def test_a_mixture_weighs_by_evidence() -> None:
    """Processes that explain the times have weights, which sum to 1; a batch is of them all."""
    timed = on_an_axis(np.linspace(0.0, 0.12, 24).tolist())
    jagged = np.random.default_rng(0).normal(0.0, 0.3, 24)
    mixed = Mixture.of(timed, jagged)
    assert mixed.weights.sum() == pytest.approx(1.0)
    assert {part.reach.own for part in mixed.parts} == {3.0}
    asked = on_an_axis([0.03, 0.031, 0.2])
    chosen, gain = mixed.batch(asked, 2, 0)
    assert len(set(chosen)) == 2
    assert gain > 0.0
    assert mixed.improvement(asked).shape == (3,)


@pytest.mark.slow
@settings(max_examples=30)
@given(count=st.integers(1, 12), shift=st.floats(-5.0, 8.0), seed=st.integers(0, 99))
def test_unit_of_time_does_not_matter(count: int, shift: float, seed: int) -> None:
    """Times in another unit give the same belief in it; deviations agree with covariances."""
    rng = np.random.default_rng(seed)
    timed = Points(rng.uniform(0, 1, count), rng.uniform(0, 2, (count, 2)), rng.random(count) < 0.5)
    asked = Points(rng.uniform(0, 1, 6), rng.uniform(0, 2, (6, 2)), rng.random(6) < 0.5)
    log_us = rng.normal(0.0, 0.3, count)
    one, other = Surrogate(timed, log_us), Surrogate(timed, log_us + shift)
    assert other.posterior(asked).mean == pytest.approx(one.posterior(asked).mean + shift)
    assert other.posterior(asked).deviation == pytest.approx(one.posterior(asked).deviation)
    covariance = one.covariance(asked)
    assert np.sqrt(np.diag(covariance)) == pytest.approx(one.posterior(asked).deviation)
    assert np.linalg.eigvalsh(covariance).min() > 0.0


def test_improvement_by_hand() -> None:
    """Level with the best is 0.4 deviations, surely behind nothing, surely ahead the lead."""
    belief = Posterior(np.array([1.0, 2.0, 0.5]), np.array([0.1, 0.01, 1e-12]))
    assert improvement(belief, 1.0) == pytest.approx([0.1 / np.sqrt(2 * np.pi), 0.0, 0.5])


def test_batch_gain_of_one_is_its_improvement() -> None:
    """Drawn or worked out, the gain of a single config is the same within the draws' error."""
    mean, covariance = np.array([1.02]), np.array([[0.01]])
    exact = improvement(Posterior(mean, np.array([0.1])), 1.0)[0]
    assert batch_gain(mean, covariance, 1.0, 0) == pytest.approx(exact, rel=0.15)
    assert batch_gain(mean, covariance, 1.0, 7) == batch_gain(mean, covariance, 1.0, 7)


def test_batches_are_spread_out() -> None:
    """Of two pairs of twins, a batch of two has one of each, though one pair is better."""
    mean = np.array([0.0, 0.0, 0.02, 0.02])
    covariance = np.kron(np.eye(2), np.full((2, 2), 0.01)) + 1e-6 * np.eye(4)
    assert spread_out(mean, covariance, 0.0, 2) == [0, 2]
    assert sorted(spread_out(mean, covariance, 0.0, 9)) == [0, 1, 2, 3]
