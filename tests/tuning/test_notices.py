"""What a search tells of a kernel once."""

from __future__ import annotations

from pathlib import Path

import pytest

from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.verdicts import Verdict
from asmtune.core.space.space import Space
from asmtune.tuning import run_log
from asmtune.tuning.run_log import CompileMemoryWarning, DefaultOnlyWarning, tell_of_failures
from asmtune.tuning.search.state import State
from tests.tuning_support import HostMachine, problem, resolved, space, workshop


@pytest.fixture(autouse=True)
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was told before."""
    monkeypatch.setattr(run_log, "_told", set())


def test_a_default_whose_rivals_all_compute_something_else_is_told_once(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """Where every other config fails its check, one warning says so, with the first's reason."""
    rivals = Space.from_configs(
        [Config({"BLOCK": b, "FLAW": int(b != 256)}, num_warps=4) for b in (256, 128, 512)]
    )
    tuner = workshop(tmp_path, HostMachine())
    for n in (4096, 8192):
        record = resolved(tuner, rivals, problem(n)).record
        assert record.winner.kwargs["BLOCK"] == 256
    (warning,) = [w for w in recwarn if w.category is DefaultOnlyWarning]
    text = str(warning.message)
    assert "each of 2 configs" in text
    assert "BLOCK=128" in text or "BLOCK=512" in text
    assert "elements of out_ptr differ" in text


def test_a_kernel_with_a_right_rival_is_not_told_of_the_wrong_ones(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """As long as one other config is right, the search has tuned."""
    resolved(workshop(tmp_path, HostMachine()), space(flaws=(0, 1)))
    assert not [w for w in recwarn if w.category is DefaultOnlyWarning]


def test_a_limit_of_memory_that_costs_several_configs_is_told_once(
    recwarn: pytest.WarningsRecorder,
) -> None:
    """Compiles that failed for want of memory are told with the limit and its variable."""
    configs = [Config({"BLOCK": block}) for block in (32, 64, 128)]
    state = State([Verdict(config, "config") for config in configs], configs[0])
    starved = Failure("llir", "memory", "the compiler died with signal SIGABRT")
    state.failures = {configs[1]: starved}
    tell_of_failures("one.starved", state, 1 << 30)
    assert not len(recwarn)
    for _ in range(2):
        state.failures = dict.fromkeys(configs[1:], starved)
        tell_of_failures("several.starved", state, 1 << 30)
    state.failures = {c: Failure("launch", "memory", "no room") for c in configs}
    tell_of_failures("memory.of.the.gpu", state, 1 << 30)
    (warning,) = recwarn
    assert warning.category is CompileMemoryWarning
    assert "2 of 2 configs could not be compiled within 1 GiB" in str(warning.message)
    assert "ASMTUNE_COMPILE_MEMORY_MB" in str(warning.message)
