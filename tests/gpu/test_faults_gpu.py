"""Kernels that fault, hang, write nothing or the wrong thing on one config, on a real GPU."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement, Outcome
from asmtune.measure.bench.base import TimingCandidate
from asmtune.measure.bench.dedup import open_bench
from tests.gpu import fault_kernels as kernels
from tests.gpu.fault_kernels import FAULT, HANG, NOTHING, WRONG

EVERYWHERE = pytest.mark.parametrize("isolate", [False, True], ids=["here", "in a child"])


def kinds(outcomes: Sequence[Outcome]) -> list[str]:
    """The kind of failure of each, or "timed"."""
    return [r.kind if isinstance(r, Failure) else "timed" for _, r in outcomes]


def quickest(outcomes: Sequence[Outcome]) -> Config:
    """The config of the least median."""
    timed = [result for _, result in outcomes if isinstance(result, Measurement)]
    return min(timed, key=lambda measurement: measurement.median_us).config


def test_a_child_survives_every_fault(here: Target) -> None:
    """In a child each bad config fails as it should, the good ones are timed, a good one wins."""
    good = [kernels.config(block=32), kernels.config(block=512), kernels.config(block=2048)]
    bad = [kernels.config(mode) for mode in (FAULT, HANG, NOTHING, WRONG)]
    configs = [kernels.config(), good[0], bad[0], good[1], *bad[1:], good[2]]
    prepared = kernels.prepare(kernels.problems()["double"], configs, here, run_timeout_s=5.0)
    bench = open_bench(prepared.setup, isolate=True)
    default, *others = prepared.entrants
    begun = bench.begin(default)
    outcomes = [begun, *bench.trial(others)]
    expected = ["timed", "timed", "fault", "timed", "timeout", "unwritten", "wrong_output", "timed"]
    assert kinds(outcomes) == expected
    finals = bench.final([default, others[2], others[-1]])
    assert kinds(finals) == ["timed"] * 3
    assert quickest(finals).kwargs["BAD"] == 0
    assert quickest(outcomes).kwargs["BLOCK"] != 32
    assert prepared.is_whole()
    bench.close()
    assert prepared.is_whole()


@EVERYWHERE
@pytest.mark.parametrize("which", ["in place", "atomics"])
def test_kernels_that_read_what_they_write(which: str, isolate: bool, here: Target) -> None:
    """Every run finds the first contents: the wrong config alone fails, the tensors are whole."""
    configs = [kernels.config(), kernels.config(WRONG), kernels.config(block=256)]
    prepared = kernels.prepare(kernels.problems()[which], configs, here)
    bench = open_bench(prepared.setup, isolate=isolate)
    outcomes = [bench.begin(prepared.entrants[0]), *bench.trial(prepared.entrants[1:])]
    assert kinds(outcomes) == ["timed", "wrong_output", "timed"]
    finals = bench.final([prepared.entrants[0], prepared.entrants[2]])
    assert kinds(finals) == ["timed", "timed"]
    bench.close()
    assert prepared.is_whole()


@EVERYWHERE
def test_no_memory_costs_one_config(isolate: bool, here: Target) -> None:
    """A hook that asks for more than the GPU has fails alone."""
    greedy = kernels.config(pre_hook=kernels.take_in_child if isolate else kernels.take_all)
    configs = [kernels.config(), kernels.config(block=512)]
    prepared = kernels.prepare(kernels.problems()["double"], configs, here)
    default, other = prepared.entrants
    bench = open_bench(prepared.setup, isolate=isolate)
    entrants = [TimingCandidate(greedy, default.artifact), other]
    outcomes = [bench.begin(default), *bench.trial(entrants)]
    assert kinds(outcomes) == ["timed", "memory", "timed"]
    bench.close()
    assert prepared.is_whole()
