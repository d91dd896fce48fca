"""Timing in this process: checks before timings, and a device that may be lost."""

from __future__ import annotations

from typing import Any

import pytest

from asmtune.base.errors import MeasureError
from asmtune.core.records.tuned import Measurement
from asmtune.measure.bench.local import LocalBench
from asmtune.measure.bench.trials import DeviceLostError
from tests.bench.bench_support import entrant, setup, told
from tests.bench.cpu_machine import CpuMachine


def opened(machine: CpuMachine | None = None, **options: Any) -> LocalBench:
    """A bench that has begun with a right config of 10 us."""
    bench = LocalBench(setup(**options), machine or CpuMachine())
    assert isinstance(bench.begin(entrant("good"))[1], Measurement)
    return bench


def test_each_entrant_gets_its_outcome_in_order() -> None:
    """Right ones get their time, wrong and silent ones the failure of their check."""
    bench = opened()
    modes = [("good", 7.0), ("wrong", 1.0), ("nothing", 1.0), ("memory", 1.0), ("print", 12.0)]
    entrants = [entrant(mode, us) for mode, us in modes]
    outcomes = bench.trial(entrants)
    assert [config for config, _ in outcomes] == [e.config for e in entrants]
    assert told(outcomes) == [7.0, "wrong_output", "unwritten", "memory", 12.0]
    bench.close()


def test_finalists_are_checked_once() -> None:
    """A final launches who passed a check before for its timing alone."""
    machine = CpuMachine()
    bench = opened(machine)
    bench.trial([entrant("print", 8.0)])
    before = machine.launched.count("print")
    outcomes = bench.final([entrant("print", 8.0), entrant("wrong", 1.0), entrant("good")])
    assert told(outcomes) == [8.0, "wrong_output", 10.0]
    policy = setup().policy
    assert machine.launched.count("print") - before == 1 + policy.fine_rounds


def test_a_broken_context_is_recognised() -> None:
    """The error names the config and what survives it; then nothing is tried any more."""
    machine = CpuMachine()
    bench = opened(machine)
    with pytest.raises(MeasureError, match=r"MODE=fault .*illegal memory.*isolate=True"):
        bench.trial([entrant("good", 7.0), entrant("fault", 5.0)])
    loaded = machine.loaded
    with pytest.raises(DeviceLostError):
        bench.trial([entrant("good", 8.0)])
    assert machine.loaded == loaded
    bench.close()


def test_a_fault_among_many_does_not_accuse_one() -> None:
    """Launches that were queued together all come into question."""
    bench = opened()
    with pytest.raises(DeviceLostError, match="one of 3 configs timed together broke"):
        bench.trial([entrant("fault later", 5.0), entrant("good", 9.0)])


def test_another_takes_the_place_of_a_default_that_fails() -> None:
    """The first that runs gives the reference, which is told; who differs from it is wrong."""
    bench = LocalBench(setup(), CpuMachine())
    assert told([bench.begin(entrant("memory"))]) == ["memory"]
    outcomes = bench.trial([entrant("memory", 2.0), entrant("wrong", 3.0), entrant("good", 4.0)])
    assert told(outcomes) == ["memory", 3.0, "wrong_output"]
    assert any("MODE=wrong" in note for note in bench.notes)
    bench.close()


def test_options_that_triton_refuses_cost_one_config() -> None:
    """Three warps are no launch; the next entrant is timed."""
    bench = opened()
    outcomes = bench.trial([entrant("good", 2.0, num_warps=3), entrant("good", 4.0)])
    assert told(outcomes) == ["options", 4.0]
    bench.close()
