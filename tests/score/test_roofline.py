"""The roofline: what it names as the bottleneck, and in which direction its times go."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asmtune.core.config import Config
from asmtune.core.hardware.model import DRAM_SHARE, LAUNCH_US, dram_rate
from asmtune.core.hardware.shipped import load_target, target_names
from asmtune.core.records.verdicts import Features
from asmtune.predict.features.catalog import FEATURES
from asmtune.predict.score.roofline import (
    OVERLAP_SHARE,
    SERIAL_SHARE,
    START_CYCLES,
    predict,
    rounded_terms,
)
from asmtune.predict.score.scorer import Candidate
from asmtune.predict.score.scorers import make_scorer
from asmtune.report.explain import TERMS

H200 = load_target("H200")
CYCLES = st.floats(0, 1e7)
COUNTS = st.integers(1, 1 << 20)
DEMANDS = {
    **{f"{unit}_cycles": CYCLES for unit in ("tensor", "issue", "shared", "l1", "special")},
    "latency_cycles": CYCLES,
    "program_l2_bytes": st.floats(0, 1e9),
    "unique_bytes": st.floats(0, 1e11),
}
SOME = st.fixed_dictionaries(
    {
        **DEMANDS,
        "programs": COUNTS.map(float),
        "programs_per_sm": st.integers(0, 32).map(float),
    }
)
"""What a prediction looks at."""


def features(values: dict[str, float]) -> Features:
    """All features, zero but for those given."""
    return Features({**dict.fromkeys(FEATURES, 0.0), **values})


def us(values: dict[str, float], **changes: float) -> float:
    """Predicted time on an H200, with some values changed."""
    return predict(features({**values, **changes}), H200).us


def not_below(longer: float, shorter: float) -> bool:
    """Say if a time is at least another, up to rounding."""
    return longer >= shorter * (1 - 1e-9)


@given(SOME, COUNTS)
def test_more_programs_are_never_faster(values: dict[str, float], more: int) -> None:
    """Programs only ever add time, over the edge of a wave too."""
    assert not_below(us(values, programs=values["programs"] + more), us(values))


@given(SOME, st.floats(1, 100))
def test_faster_dram_is_never_slower(values: dict[str, float], factor: float) -> None:
    """A higher rate of DRAM only ever takes time away."""
    rates = {"dram_bytes_per_s": H200.dram_bytes_per_s * factor}
    assert H200.measured_dram_bytes_per_s is not None
    rates["measured_dram_bytes_per_s"] = H200.measured_dram_bytes_per_s * factor
    faster = replace(H200, **rates)  # type: ignore[arg-type]
    assert not_below(us(values), predict(features(values), faster).us)


@given(SOME, st.sampled_from(sorted(DEMANDS)), st.floats(1, 10))
def test_demands_are_never_faster(values: dict[str, float], name: str, factor: float) -> None:
    """More cycles of any unit, or more bytes, only ever add time."""
    assert not_below(us(values, **{name: values[name] * factor}), us(values))


@given(SOME, st.sampled_from(target_names()))
def test_terms(values: dict[str, float], machine: str) -> None:
    """The terms, none below 0, sum to the prediction on every target; the largest is the limit."""
    prediction = predict(features(values), load_target(machine))
    terms = prediction.terms_us
    assert set(terms) == set(TERMS)
    assert all(term >= 0 for term in terms.values())
    assert math.isclose(sum(terms.values()), prediction.us, rel_tol=1e-9)
    assert terms[prediction.bottleneck] == max(terms.values())
    assert prediction.us >= LAUNCH_US == terms["launch"]


@given(SOME, st.integers(0, 3))
def test_rounded_terms_sum_to_the_rounded_prediction(values: dict[str, float], digits: int) -> None:
    """No term is off by more than its last digit, and the largest stays the largest."""
    prediction = predict(features(values), H200)
    rounded = rounded_terms(prediction.terms_us, prediction.us, digits)
    assert math.isclose(sum(rounded.values()), round(prediction.us, digits), rel_tol=1e-9)
    for name, term in prediction.terms_us.items():
        assert abs(rounded[name] - term) <= 1.001 * 10**-digits
    assert rounded[prediction.bottleneck] == max(rounded.values())


def test_by_hand() -> None:
    """Two full waves of two programs an SM, whose tensor cores take a thousand cycles each."""
    values = {
        "tensor_cycles": 1000.0,
        "programs": 4.0 * H200.sms,
        "programs_per_sm": 2.0,
        "latency_cycles": 500.0,
    }
    program = 1000.0 + SERIAL_SHARE * START_CYCLES
    assert us(values) == pytest.approx(4 * program / H200.clock_hz * 1e6 + LAUNCH_US)
    # A chain longer than what the programs keep busy takes its own time a wave.
    assert us(values, latency_cycles=5000.0) == pytest.approx(
        10000 / H200.clock_hz * 1e6 + LAUNCH_US
    )
    # A launch ends no earlier than its longest program.
    assert us(values, longest_cycles=20000.0) == pytest.approx(
        20000 / H200.clock_hz * 1e6 + LAUNCH_US
    )
    # A grid of less than a wave: its fullest SM has three programs.
    few = {**values, "programs": 2.5 * H200.sms, "programs_per_sm": 4.0}
    assert us(few) == pytest.approx(3 * program / H200.clock_hz * 1e6 + LAUNCH_US)
    # DRAM beside it: the longer one, and a share of the other, which starts the program.
    rate = H200.measured_dram_bytes_per_s
    assert rate is not None
    bare = replace(H200, measured_dram_bytes_per_s=None)
    assert dram_rate(bare) == DRAM_SHARE * H200.dram_bytes_per_s
    start = START_CYCLES / H200.clock_hz * 1e6
    assert us({"unique_bytes": rate / 1e3, "programs": 1.0}) == pytest.approx(
        1000 + OVERLAP_SHARE * start + LAUNCH_US
    )


def test_scores() -> None:
    """The score is minus the logarithm of the predicted time; what was not compiled comes last."""
    slow = features({"programs": 1.0, "latency_cycles": 1e6})
    fast = features({"programs": 1.0, "latency_cycles": 1e3})
    candidates = [Candidate(Config({}), H200, features=found) for found in (None, slow, fast)]
    scores = make_scorer("roofline").score(candidates)
    assert scores[0] == float("-inf")
    assert scores[1:] == [-math.log(predict(found, H200).us) for found in (slow, fast)]
    assert scores[0] < scores[1] < scores[2]
