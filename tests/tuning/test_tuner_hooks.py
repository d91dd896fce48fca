"""Whole runs with a user's hooks and clock, and what a search tells of a kernel once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.verdicts import Verdict
from asmtune.core.space.space import Space
from asmtune.tuning import listener
from asmtune.tuning.listener import CompileMemoryWarning, DefaultOnlyWarning, tell_of_failures
from asmtune.tuning.search.state import SearchState
from tests.tuning_support import (
    BEST,
    HostMachine,
    problem,
    resolved,
    space,
    usual_us,
    workshop,
)


@pytest.mark.slow
def test_hooks_are_called_around_every_launch(tmp_path: Path) -> None:
    """As often before as after; at the end once more, with the winner's values, to reset."""
    called: list[tuple[str, bool]] = []
    values: list[Mapping[str, Any]] = []

    def before(kwargs: dict[str, Any], reset_only: bool = False) -> None:
        called.append(("pre", reset_only))
        values.append(dict(kwargs))
        if reset_only:
            kwargs["out_ptr"].zero_()

    def after(kwargs: dict[str, Any], exception: Exception | None) -> None:
        assert exception is None
        called.append(("post", False))

    made = problem()
    maker = workshop(tmp_path, HostMachine(), pre_hook=before, post_hook=after)
    record = resolved(maker, made=made).record
    assert record.winner == BEST
    *launches, last = called
    assert launches == [("pre", False), ("post", False)] * (len(launches) // 2)
    assert len(launches) > 20
    assert last == ("pre", True)
    assert values[-1]["BLOCK"] == BEST.kwargs["BLOCK"]
    assert values[-1]["num_warps"] == BEST.num_warps
    assert values[-1]["out_ptr"] is made.arguments["out_ptr"]
    assert torch.equal(made.arguments["out_ptr"], torch.zeros(4096))  # what the last call left


def clock_of(machine_us: Callable[[Config], float]) -> Callable[..., list[float]]:
    """A `do_bench` that tells the time of the config whose hook was called last."""

    def do_bench(kernel_call: Callable[[], None], quantiles: Any) -> list[float]:
        kernel_call()
        ms = machine_us(_LAST["config"]) / 1000
        return [ms, ms * 0.9, ms * 1.1]

    return do_bench


_LAST: dict[str, Config] = {}


def remember(kwargs: dict[str, Any], reset_only: bool = False) -> None:
    """A hook that tells the clock who runs."""
    names = ("BLOCK", "FLAW")
    _LAST["config"] = Config({n: kwargs[n] for n in names}, num_warps=kwargs["num_warps"])


@pytest.mark.slow
def test_the_users_clock_chooses(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """Its least time wins, however little it differs, and our clock takes no sample."""

    def slowest_first(config: Config) -> float:
        return 1000.0 - usual_us(config)

    worst = min(space(), key=slowest_first)
    machine = HostMachine()
    choices = {"do_bench": clock_of(slowest_first), "pre_hook": remember}
    made = workshop(tmp_path, machine, "exhaustive", **choices)
    record = resolved(made, space(flaws=(0, 1))).record
    assert machine.timed == []
    assert record.winner == worst
    assert record.median_us == pytest.approx(slowest_first(worst))
    wrong = [config for config, _ in record.failures if config.kwargs["FLAW"]]
    assert len(wrong) == 20  # checked, and never timed
    # One right rival is enough: the search has tuned.
    assert not [w for w in recwarn if w.category is DefaultOnlyWarning]


@pytest.fixture(autouse=True)
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was told before."""
    monkeypatch.setattr(listener, "_told", set())


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


def test_a_limit_of_memory_that_costs_several_configs_is_told_once(
    recwarn: pytest.WarningsRecorder,
) -> None:
    """A note on compiles that failed for want of memory names the limit and its variable."""
    configs = [Config({"BLOCK": block}) for block in (32, 64, 128)]
    state = SearchState([Verdict(config, "config") for config in configs], configs[0])
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
