"""Launches of a key with alternatives that nothing has timed yet: what serves, and who decides."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
import torch
from torch.distributed import HashStore

import asmtune.runtime.autotuner as autotuner
from asmtune import asm_autotune
from asmtune.base.errors import CompileError
from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.runtime import rank_agreement
from asmtune.runtime.misses import background
from asmtune.runtime.misses.in_progress import KeysInProgress
from asmtune.runtime.misses.lookups import Choice, MissLookup
from asmtune.runtime.misses.resolver import MissWarning
from asmtune.runtime.rank_agreement import RankJob
from asmtune.triton_api.launching import CurrentStream
from tests.dispatch.host import miss
from tests.tuning_support import BEST, DEFAULT, DEVICE, add

REQUEST = miss(64)
PICK = Choice(DEFAULT.with_alternative("first"), False, "fallback", until_tuned=True)
TUNED = Choice(BEST.with_alternative("second"), True, "tuned")


class Kernel:
    """A kernel with two alternatives, whose misses get `PICK`.

    Attributes:
        calls: what served, by name; a config's launch is "config".
        before: called by the alternatives, with their name and x, before they write.
    """

    def __init__(self, patch: pytest.MonkeyPatch, pick: Choice = PICK) -> None:
        self.calls: list[str] = []
        self.before: Callable[[str, Any], None] = lambda _name, _x: None

        def alternative(name: str) -> Callable[..., None]:
            def run(x: Any, y: Any, out: Any, n: int) -> None:
                self.before(name, x)
                torch.add(x, y, out=out)
                self.calls.append(name)

            return run

        given = {name: alternative(name) for name in ("first", "second")}
        self.tuner = asm_autotune([DEFAULT, BEST], ["n"], alternatives=given)(add)
        self.chooser = self.tuner._chooser
        patch.setattr(self.chooser, "_resolve_miss", lambda *_: (REQUEST, pick))
        patch.setattr(self.tuner, "_run", self._run)

    def _run(self, *_: Any) -> Any:
        self.calls.append("config")
        raise CompileError("here is no GPU")

    def launch(self, x: torch.Tensor | None = None, grid: Any = (1,)) -> str:
        """Launch; return what served."""
        x = torch.ones(64) if x is None else x
        try:
            self.tuner[grid](x, x, torch.empty(64), 64)
        except CompileError:
            assert self.calls[-1] == "config"
        return self.calls[-1]

    def settle(self, choice: Choice) -> None:
        """End what the background does for the key."""
        self.chooser._on_background_tuned(REQUEST, choice)

    @property
    def config(self) -> Config:
        """The key's config in memory."""
        config: Config
        (config,) = self.tuner.cache.values()
        return config


@pytest.fixture(autouse=True)
def _on_the_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let launches be planned without a GPU."""
    autotuner.backend.cache_clear()
    stream = CurrentStream(lambda: -1, lambda _: 77)
    monkeypatch.setattr(autotuner, "current_stream", lambda: stream)
    yield
    autotuner.backend.cache_clear()


def refused(*names: str) -> Callable[[str, Any], None]:
    """Raise in some alternatives."""

    def before(name: str, _: Any) -> None:
        if name in names:
            raise RuntimeError(name)

    return before


def test_what_raises_stays_out_where_the_key_cannot_be_tuned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The background's failure is no reason to call the first again."""
    kernel = Kernel(monkeypatch)
    kernel.before = refused("first")
    assert kernel.launch() == "second"
    kernel.settle(replace(PICK, final=True))
    assert [kernel.launch(), kernel.launch()] == ["second", "second"]


def test_a_stored_config_serves_while_a_new_name_is_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No function that nothing has timed or checked takes the place of what was tuned."""
    stored = Kernel(monkeypatch, Choice(BEST, False, "known", until_tuned=True))
    assert (stored.launch(), stored.calls, stored.config) == ("config", ["config"], BEST)
    other = replace(TUNED, final=False, how="known", until_tuned=True)
    assert Kernel(monkeypatch, other).launch() == "second"


def test_each_launch_of_an_untuned_key_may_refuse_the_alternative(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A later launch of the key, whose tensors lie elsewhere, gets the next alternative as well."""
    kernel = Kernel(monkeypatch)

    def before(name: str, x: torch.Tensor) -> None:
        if name == "first" and x.data_ptr() % 16:
            raise RuntimeError("not aligned")

    kernel.before = before
    assert kernel.launch() == "first"
    assert kernel.launch(torch.ones(65)[1:]) == "second"


def test_a_planned_launch_may_refuse_the_alternative(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made again without its plan: strides, say, are no part of what is planned."""
    kernel, seen = Kernel(monkeypatch), []

    def before(name: str, x: torch.Tensor) -> None:
        seen.append(name)
        if name == "first" and x.stride(0) != 1:
            raise RuntimeError("rows have gaps")

    kernel.before = before
    assert [kernel.launch(), kernel.launch()] == ["first", "first"]
    apart = torch.ones(128)[::2]
    assert [kernel.launch(apart), kernel.launch(apart)] == ["second", "second"]
    assert seen == ["first", "first", "first", "first", "second", "second"]


def test_asmtunes_errors_in_an_alternative_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """One may launch tuned kernels, as in a race; what a grid raises is the user's to see."""
    kernel = Kernel(monkeypatch)
    kernel.before = mock.Mock(side_effect=CompileError("no config of it compiles"))
    assert kernel.launch() == "config"
    assert kernel.before.call_count == 2

    def grid(values: Any) -> tuple[int]:
        raise KeyError("BLOK")

    kernel = Kernel(monkeypatch)
    with pytest.raises(Exception, match="BLOK"):
        kernel.launch(grid=grid)
    assert kernel.calls == []


@pytest.mark.parametrize("settled", [TUNED, replace(PICK, how="busy")])
def test_what_the_background_finds_during_the_first_launch_stays(
    settled: Choice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An alternative may tune kernels of its own, and take longer than the background."""
    kernel = Kernel(monkeypatch)

    def before(name: str, _: Any) -> None:
        if name == "first":
            kernel.settle(settled)
            raise RuntimeError(name)

    kernel.before = before
    assert kernel.launch() == "second"
    assert [*kernel.tuner.cache.values()] == ([TUNED.config] if settled is TUNED else [])


def test_a_config_that_a_program_puts_there_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the background nor an alternative takes its place."""
    kernel = Kernel(monkeypatch)
    assert kernel.launch() == "first"
    (key,) = kernel.tuner.cache
    kernel.tuner.cache[key] = BEST
    kernel.settle(TUNED)
    assert (kernel.launch(), kernel.config) == ("config", BEST)


def test_an_alternative_of_another_rank_may_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rank that has announced it does not say if it was timed: another serves in its place."""
    job = RankJob(HashStore(), 0)
    monkeypatch.setattr(rank_agreement, "current_job", lambda: job)
    request = replace(REQUEST, choices={"alternatives": {"first": add, "second": add}})
    resolver = mock.Mock()
    resolver.resolve.return_value, resolver.options.fallback = PICK, None
    first = rank_agreement.resolve(resolver, request)
    other = rank_agreement.resolve(resolver, request)
    assert resolver.resolve.call_count == 1
    assert (first.config, first.until_tuned) == (other.config, other.until_tuned)
    assert (other.config, other.until_tuned) == (PICK.config, True)


def test_a_key_that_could_not_be_queued_is_queued_by_the_next_launch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ctrl-C may come while the arguments are copied."""
    keys = KeysInProgress(mock.Mock(), mock.Mock(), mock.Mock())
    later = mock.Mock(side_effect=[KeyboardInterrupt, True])
    monkeypatch.setattr(background, "tune_later", later)
    lookup = MissLookup(REQUEST, Settings.from_environment())
    with pytest.raises(KeyboardInterrupt):
        keys.begin(lookup, PICK)
    assert keys.find(lookup) is None
    assert keys.begin(lookup, PICK) == PICK
    assert later.call_count == 2


def test_nothing_is_queued_while_the_program_exits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python starts no thread then, and a launch in `atexit` goes on without."""
    ended = mock.Mock(is_alive=lambda: False)
    monkeypatch.setattr(threading, "main_thread", lambda: ended)
    assert not background.tune_later(REQUEST, mock.Mock())


def test_a_full_queue_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that wait hold copies of their arguments: others are planned, and ask when one ends."""
    keys = KeysInProgress(mock.Mock(), mock.Mock(), mock.Mock())
    lookup = MissLookup(REQUEST, Settings.from_environment())
    queue, held, ended = background.queue_of(DEVICE), threading.Event(), threading.Event()
    queue.put(lambda: held.wait(120.0))
    with mock.patch.object(background.BackgroundQueue, "is_full", True):
        full = keys.begin(lookup, PICK)
    assert (full.config, full.how, keys.find(lookup)) == (PICK.config, "busy", None)
    kernel = Kernel(monkeypatch, full)
    assert [kernel.launch(), kernel.launch(), kernel.config] == ["first", "first", PICK.config]
    held.set()
    queue.put(ended.set)
    assert ended.wait(120.0)
    assert [*kernel.tuner.cache] == []
    assert [kernel.launch(), kernel.config] == ["first", PICK.config]


def test_a_mistake_in_an_alternative_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that cannot be called as it is must not vanish; what a vendor refuses may."""
    kernel = Kernel(monkeypatch, replace(PICK, how="busy"))
    kernel.before = mock.Mock(side_effect=TypeError("takes 3 arguments"))
    with pytest.warns(
        MissWarning, match=r"alternatives\['first'\] raised TypeError: takes 3"
    ) as told:
        assert [kernel.launch(), kernel.launch()] == ["config", "config"]
    assert len(told) == 2  # one of each function
