"""The untuned kernels of AI-Bench8 on a GPU, at the sizes that they are timed at."""

from __future__ import annotations

import pytest

from asmtune.core.config import Config
from asmtune.measure.timing.clock import GpuClock
from asmtune.measure.timing.policy import TimingPolicy
from benchmarks.aibench8.experiment import race, untuned
from benchmarks.aibench8.summary import BASELINE
from benchmarks.aibench8.tasks import TASKS

POLICY = TimingPolicy(mode="graph", flush_bytes=0, launches=5, fine_rounds=5)


@pytest.mark.parametrize("name", TASKS)
def test_untuned_kernels(name: str) -> None:
    """Each is right, can be captured in a graph, and takes some time."""
    entrants = untuned(TASKS[name], "cuda")
    rows = race(entrants, GpuClock(POLICY), POLICY)
    assert [row.get("failed") for row in rows] == [None] * len(entrants)
    assert all(row["bar"] == BASELINE and row["p50_us"] > 0.5 for row in rows)
    assert [Config.from_dict(row["config"]) for row in rows] == [e.config for e in entrants]
