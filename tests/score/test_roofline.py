"""The roofline: what it names as the bottleneck, and in which direction its times go."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target, target_names
from asmtune.core.problem import Problem
from asmtune.core.records.verdicts import Features
from asmtune.kernels import tiled_matmul as matmul
from asmtune.predict.features.catalog import FEATURES
from asmtune.predict.features.reader import launch_features
from asmtune.predict.score.roofline import (
    DRAM_SHARE,
    LAUNCH_US,
    OVERLAP_SHARE,
    SERIAL_SHARE,
    START_CYCLES,
    PredictedTime,
    dram_rate,
    predict,
    rounded_terms,
)
from asmtune.predict.score.scorer import Candidate
from asmtune.predict.score.scorers import make_scorer
from asmtune.report.explain.record import TERMS
from tests.launch_kernels import WITH_TENSOR_CORES, Launch, chain, many_powers, pointers
from tests.sample_kernels import scale, tensor

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
    start = START_CYCLES / H200.clock_hz * 1e6
    assert us({"unique_bytes": rate / 1e3, "programs": 1.0}) == pytest.approx(
        1000 + OVERLAP_SHARE * start + LAUNCH_US
    )


def test_dram_rate() -> None:
    """A measured rate stands before the datasheet's, of which a copy reaches a share."""
    assert dram_rate(H200) == H200.measured_dram_bytes_per_s
    bare = replace(H200, measured_dram_bytes_per_s=None)
    assert dram_rate(bare) == DRAM_SHARE * H200.dram_bytes_per_s
    slower = replace(H200, dram_bytes_per_s=H200.dram_bytes_per_s / 2)
    assert dram_rate(slower) == DRAM_SHARE * slower.dram_bytes_per_s


def copy(n: int) -> tuple[Problem, Config]:
    """Read and write n floats."""
    arguments = {"x_ptr": tensor(torch.float32, n), "y_ptr": tensor(torch.float32, n), "n": n}
    return Problem(scale, arguments, (max(1, n // 1024),)), Config({"BLOCK": 1024})


def big_product() -> tuple[Problem, Config]:
    """A product of 8192 cubed in fp16."""
    values = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}
    problem = matmul.problem({"M": 8192, "N": 8192, "K": 8192}, "fp16", "meta")
    return problem, Config(values, num_warps=8, num_stages=3)


def on_blocks(kernel: Any, programs: int, **values: int) -> tuple[Problem, Config]:
    """A kernel of two pointers and a count."""
    arguments = {**pointers(torch.float32, "x_ptr", "y_ptr"), **values}
    return Problem(kernel, arguments, (programs,)), Config({"BLOCK": 1024})


CASES = {
    "big copy": (copy(1 << 28), {"DRAM"}),
    "tiny copy": (copy(1024), {"launch"}),
    "powers": (on_blocks(many_powers, 4096, times=50), {"special", "issue"}),
    "chain": (on_blocks(chain, 1, steps=4096), {"latency"}),
    "product": (big_product(), {"tensor", "shared", "L2"}),
}


def prediction_of(case: str, machine: str, launch: Launch) -> PredictedTime:
    """A case as the roofline sees it."""
    (problem, config), _ = CASES[case]
    if load_target(machine).shared_bytes_per_block < 132 << 10:
        config = Config(config.kwargs, num_warps=config.num_warps, num_stages=2)
    reading = launch(problem, config, machine)
    return predict(launch_features(reading.profile, reading.work, reading.target), reading.target)


@pytest.mark.slow(seconds=1)
@pytest.mark.parametrize("machine", WITH_TENSOR_CORES)
@pytest.mark.parametrize("case", CASES)
def test_bottlenecks(case: str, machine: str, launch: Launch) -> None:
    """On every target a kernel that is made for one limit meets it."""
    assert prediction_of(case, machine, launch).bottleneck in CASES[case][1]


def test_times_are_near_the_limits(launch: Launch) -> None:
    """A big copy takes what DRAM takes, and a big product no less than its tensor cores."""
    moved = 2 * 4 * (1 << 28) / dram_rate(H200) * 1e6
    assert moved < prediction_of("big copy", "H200", launch).us < 1.25 * moved
    fastest = 2 * 8192**3 / H200.tensor_flops_per_s["fp16"] * 1e6
    assert fastest < prediction_of("product", "H200", launch).us < 3 * fastest
    assert LAUNCH_US < prediction_of("tiny copy", "H200", launch).us < 2 * LAUNCH_US


def test_scores() -> None:
    """The score is minus the logarithm of the predicted time; what was not compiled comes last."""
    slow = features({"programs": 1.0, "latency_cycles": 1e6})
    fast = features({"programs": 1.0, "latency_cycles": 1e3})
    candidates = [Candidate(Config({}), H200, features=found) for found in (None, slow, fast)]
    scores = make_scorer("roofline").score(candidates)
    assert scores[0] == float("-inf")
    assert scores[1:] == [-math.log(predict(found, H200).us) for found in (slow, fast)]
    assert scores[0] < scores[1] < scores[2]
