"""Launches that the launcher counts, and what is said of kernels that they bound."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.core.records.tuned import Measurement, TuneRecord
from asmtune.runtime import autotuner
from asmtune.runtime.autotuner import AsmAutotuner
from asmtune.runtime.calls import KernelCall
from asmtune.runtime.decorator import asm_autotune
from asmtune.runtime.launch_counts import FEWEST, LaunchCounts
from asmtune.store.database import Store
from asmtune.store.lookup import StoredPrediction
from tests.launch.fakes import FakeDriver
from tests.launch.stand_in import plan_of_launch

WINNER, OTHER = Config({"BLOCK": 128}), Config({"BLOCK": 64})
DEVICE = "NVIDIA Imagined"
X = torch.zeros(8)


@triton.jit
def add(x_ptr, n, BLOCK: tl.constexpr):
    """Stand for a kernel that never runs."""


@pytest.fixture
def counts(
    driver: FakeDriver, c_part: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LaunchCounts]:
    """Counts of what is launched over a driver that takes notes, with a new store."""
    monkeypatch.setenv("ASMTUNE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("asmtune.measure.timing.nvml.device_name", lambda: DEVICE)
    monkeypatch.setattr(add, "run", lambda *_, **__: "compiled")
    monkeypatch.setattr(AsmAutotuner, "_part", c_part)

    def plan_of(part: Any, launched: Any, _: Any) -> Any:
        return plan_of_launch(part, tuner, dict(launched.given), config=launched.config)

    tuner = _tuner()
    monkeypatch.setattr(autotuner, "plan_of", plan_of)
    driver.expect([8])
    made = LaunchCounts()
    with made.counting():
        yield made
    c_part.Plan.count(False)


def _tuner(**options: Any) -> AsmAutotuner:
    options = {"on_miss": "raise", **options}
    return asm_autotune(configs=[OTHER, WINNER], key=["n"], **options)(add)


def _pinned() -> AsmAutotuner:
    tuner = _tuner()
    tuner.cache[tuner._chooser.key_of(KernelCall((4,), (X, 8), {}, tuner.arg_names))] = WINNER
    return tuner


def _store(folder: Path, us: float, *, timed: bool = True) -> None:
    """Keep the record of the key, whose winner takes some microseconds, or a prediction of them."""
    request = _tuner().request({}, {"x_ptr": X, "n": 8}, (1,), DEVICE)
    key, expected = request.key, request.expected
    timing = Measurement(WINNER, us, us, us, (us,))
    with Store.open(folder / "store.sqlite") as store:
        if timed:
            store.save(TuneRecord(key, WINNER, (timing,), expected))
        else:
            store.save_prediction(StoredPrediction(key, WINNER, us, expected))


def _launch(tuner: AsmAutotuner, count: int, pause: Callable[[], None] = lambda: None) -> None:
    for _ in range(count + 1):  # the first makes the plan
        tuner[(4,)](X, 8)
        pause()


def _work() -> None:
    """Keep the host busy for 100 us."""
    end = time.perf_counter() + 1e-4
    while time.perf_counter() < end:
        pass


@pytest.mark.parametrize("timed", [True, False])
def test_launches_shorter_than_the_hosts_time_are_named(
    counts: LaunchCounts, tmp_path: Path, timed: bool
) -> None:
    """The kernel, its launches and both times are in one line, with a time or a prediction."""
    _store(tmp_path, 4.0, timed=timed)
    _launch(_tuner(on_miss="raise" if timed else "predict"), FEWEST, _work)
    (tally,) = counts.tallies()
    assert (tally.count, tally.gpu_us) == (FEWEST, 4.0)
    assert tally.host_us > 100
    (line,) = counts.launch_bound()
    assert f"launch-bound: {__name__}.add: {FEWEST} launches of 4.0 us" in line


def test_a_gpu_that_is_busy_for_longer_is_no_finding(counts: LaunchCounts, tmp_path: Path) -> None:
    """Where the launches take the GPU longer than the host, nothing is said."""
    _store(tmp_path, 1e6)
    _launch(_tuner(), FEWEST)
    assert counts.tallies()[0].count == FEWEST
    assert counts.launch_bound() == []


def test_a_pause_is_no_time_of_a_launch(counts: LaunchCounts, tmp_path: Path) -> None:
    """What lies a millisecond or more before a launch is not the host's time for it."""
    _store(tmp_path, 4.0)
    tuner = _tuner()
    _launch(tuner, 2)
    for _ in range(3):
        time.sleep(0.02)
        _launch(tuner, 2)
    (tally,) = counts.tallies()
    assert tally.count == 11
    assert tally.host_us < 2_000


def test_nothing_is_counted_unless_it_is_asked_for(counts: LaunchCounts, c_part: Any) -> None:
    """Other programs pay for no clock."""
    tuner = _pinned()
    _launch(tuner, 2)
    c_part.Plan.count(False)
    _launch(tuner, 3)
    assert [plan.launches for _, _, plan in counts._plans] == [2]
