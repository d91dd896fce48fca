"""Alternatives: functions that are timed beside the configs, stored by name and called."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import asmtune.runtime.autotuner as autotuner
from asmtune import asm_autotune
from asmtune.base.errors import InputError
from asmtune.core.alternatives import caller, calls_in_race
from asmtune.core.config import Config
from asmtune.core.records.tuned import Measurement, TuneRecord
from asmtune.runtime.calls import KernelCall
from asmtune.runtime.misses.background import queue_of
from asmtune.runtime.misses.lookups import Choice
from asmtune.store.database import Store
from asmtune.triton_api.launching import CurrentStream
from asmtune.tuning.request import TuningRequest
from tests.dispatch.host import Host, miss
from tests.tuning_support import (
    BEST,
    DEFAULT,
    DEVICE,
    HostMachine,
    add,
    resolved,
    space,
    usual_us,
    workshop,
)

WON = BEST.with_alternative("vendor")


def vendor(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor, n: int) -> None:
    """Do what the kernel does."""
    assert out.numel() == n
    torch.add(x, y, out=out)


def us_of(alternative: float) -> Callable[[Config], float]:
    """Return the time of a config; that of any alternative is given."""
    return lambda config: usual_us(config) if config.alternative is None else alternative


def tuned(folder: Path, us: float, **functions: Any) -> TuneRecord:
    """Tune with alternatives that all take the same time."""
    maker = workshop(folder, HostMachine(us_of(us)), "quick", alternatives=functions)
    record = resolved(maker, space(warps=(4, 8))).record
    assert record is not None
    return record


def as_stored(at: TuningRequest, winner: Config, us: float = 5.0) -> TuneRecord:
    """Make a record that is valid for a request, with an alternative as its winner."""
    timed = tuple(Measurement(c, us, us, us, (us,)) for c in (winner, winner.plain))
    return TuneRecord(at.key, winner, timed, at.expected)


def test_the_faster_function_wins_and_is_stored_by_name(tmp_path: Path) -> None:
    """The record names it in the best config, and the next process reads both."""
    record = tuned(tmp_path, 3.0, vendor=vendor)
    assert record.winner == WON
    assert record.median_us == 3.0
    assert {m.config.alternative for m in record.measurements} == {None, "vendor"}
    assert BEST in [m.config for m in record.config_timings]
    again = workshop(tmp_path, HostMachine(), alternatives={"vendor": vendor})
    known = resolved(again, space(warps=(4, 8)))
    assert known.outcome == "known"
    assert known.record is not None
    assert known.record.winner == WON


def test_a_name_that_is_new_is_timed_beside_the_stored_winner_alone(tmp_path: Path) -> None:
    """The joined record has all timings, and neither set of names is timed again."""
    before = tuned(tmp_path, 3.0)
    machine, functions = HostMachine(us_of(3.0)), {"vendor": vendor}
    added = resolved(workshop(tmp_path, machine, alternatives=functions), space(warps=(4, 8)))
    assert (added.outcome, {*machine.timed}) == ("tuned", {BEST, WON})
    assert added.record is not None
    assert added.record.winner == WON
    timed = [m.config for m in added.record.measurements]
    assert sorted(map(str, timed)) == sorted(str(c) for c in (WON, *configs_timed(before)))
    machine.timed.clear()
    for names, winner in (({}, BEST), (functions, WON)):
        again = resolved(workshop(tmp_path, machine, alternatives=names), space(warps=(4, 8)))
        assert (again.outcome, machine.timed) == ("known", [])
        assert again.record is not None
        assert again.record.winner == winner
    more = {**functions, "other": vendor}
    machine.us = lambda config: 1.0 if config.alternative == "other" else us_of(3.0)(config)
    most = resolved(workshop(tmp_path, machine, alternatives=more), space(warps=(4, 8))).record
    assert most is not None
    assert (most.winner.alternative, most.tried) == ("other", {"vendor", "other"})


def configs_timed(record: TuneRecord) -> list[Config]:
    """Return the configs that a record has timings of."""
    return [m.config for m in record.measurements]


def test_wrong_and_raising_functions_lose_with_a_reason(tmp_path: Path) -> None:
    """Outputs are poisoned before and compared with the default's after, as for a config."""

    def wrong(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor, n: int) -> None:
        out.copy_(x + y + 1)

    def returning(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor, n: int) -> torch.Tensor:
        return x + y

    def raising(*_: Any) -> None:
        raise ValueError("no such layout")

    record = tuned(tmp_path, 3.0, wrong=wrong, returning=returning, raising=raising, short=len)
    assert record.winner == BEST
    failed = {c.alternative: f for c, f in record.failures if c.alternative is not None}
    assert {name: (f.stage, f.kind) for name, f in failed.items() if name != "short"} == {
        "wrong": ("check", "wrong_output"),
        "returning": ("check", "unwritten"),
        "raising": ("launch", failed["raising"].kind),
    }
    assert "no such layout" in failed["raising"].detail
    assert "short" in failed


def test_bad_alternatives_are_refused_at_once() -> None:
    """One line says what is wrong, where the kernel is decorated."""
    names = ["", "a\nb", " a", "a" * 65]
    for given in ([vendor], {1: vendor}, *({name: vendor} for name in names), {"a": 3}, {"a": add}):
        with pytest.raises(InputError, match="alternatives") as raised:
            asm_autotune([DEFAULT], ["n"], alternatives=given)  # type: ignore[arg-type]
        assert "\n" not in str(raised.value)


def test_arguments_go_by_position_up_to_the_first_gap() -> None:
    """What the launch leaves to the config is not passed; what comes after goes by name."""
    calls: list[Any] = []

    def noted(*args: Any, **kwargs: Any) -> None:
        calls.append((args, kwargs, torch.is_grad_enabled()))

    caller(noted, ["a", "b", "BLOCK", "c"], {"a", "b", "c"}, skip=1)(0, 1, 2, 64, 3)
    caller(noted, ["a", "b"], {"a", "b"})(1, 2)
    assert calls == [((1, 2), {"c": 3}, False), ((1, 2), {}, False)]


def test_a_returned_function_is_called_after_and_not_timed(tmp_path: Path) -> None:
    """A race calls it when the time is taken, and checks what it wrote; a launch at once."""
    written: list[str] = []

    def late(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor, n: int) -> Callable[[], None]:
        total = x + y
        written.append("run")

        def copy() -> None:
            assert not torch.is_grad_enabled()
            out.copy_(total)
            written.append("copied")

        return copy

    record = tuned(tmp_path, 3.0, vendor=late)
    assert record.winner == WON
    assert written[-2:] == ["run", "copied"]
    x, out = torch.ones(4), torch.zeros(4)
    given = {"x": x, "y": x, "out": out, "n": 4}
    run, complete = calls_in_race(late, list(given), given)
    run()
    assert written[-1] == "run"
    complete()
    complete()
    assert written[-2:] == ["run", "copied"]
    assert out.tolist() == [2.0] * 4
    caller(late, list(given), given)(x, out, out, 4)
    assert out.tolist() == [3.0] * 4


def with_functions(at: TuningRequest, **functions: Any) -> TuningRequest:
    """Return the request as a decorator with alternatives makes it."""
    return replace(at, choices={"alternatives": functions})


def test_a_lookup_gives_the_function_while_the_code_has_it(host: Host) -> None:
    """A stored winner is known with its name, and without it where the name is gone."""
    Store.open(host.folder / "store.sqlite").save(as_stored(miss(), WON))
    here = with_functions(miss(), vendor=vendor)
    assert host.resolver().resolve(here).config == WON
    gone = with_functions(miss(), other=vendor)
    assert host.resolver().resolve(gone).config == BEST
    assert host.resolver().resolve(miss()).config == BEST


@pytest.mark.parametrize("on_miss", ["tune", "raise", "background", "predict"])
def test_a_lookup_times_a_name_that_the_record_lacks(on_miss: str, host: Host) -> None:
    """Only where keys are tuned; while a graph is captured the stored config serves."""
    host.machine.us = us_of(3.0)
    Store.open(host.folder / "store.sqlite").save(as_stored(miss(), BEST))
    here = with_functions(miss(), vendor=vendor)
    options = {"on_miss": on_miss, "choices": {"alternatives": {"vendor": vendor}}}
    resolver = host.resolver(**options)
    assert resolver.resolve(here, capturing=True).config == BEST
    assert host.machine.timed == []
    found = resolver.resolve(here)
    expected = ("tuned", WON) if on_miss == "tune" else ("known", BEST)
    assert (found.how, found.config) == expected
    if on_miss == "background":
        expected = "known", WON
        ended = threading.Event()
        queue_of(DEVICE).put(ended.set)
        assert ended.wait(120.0)
    host.machine.timed.clear()
    assert host.resolver(**options).resolve(here).config == expected[1]
    assert host.machine.timed == []


def test_an_alternative_serves_while_a_key_is_tuned(host: Host) -> None:
    """The first that is named is called, unless a config of the user's is to serve."""
    here = with_functions(miss(), vendor=vendor, other=vendor)
    held, ended = threading.Event(), threading.Event()
    queue_of(DEVICE).put(lambda: held.wait(120.0))
    options = {"on_miss": "background", "choices": {"alternatives": here.alternatives}}
    found = host.resolver(**options).resolve(here)
    own = host.resolver(**options, fallback=BEST).resolve(here)
    held.set()
    queue_of(DEVICE).put(ended.set)
    assert ended.wait(120.0)
    assert (found.config, found.final) == (DEFAULT.with_alternative("vendor"), False)
    assert own.config == BEST


def test_by_default_nothing_waits_for_an_alternative(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is called at once, unless it cannot be sent to the process that times, or a user chose."""
    lock = threading.Lock()  # what holds one cannot be sent

    def locked(*arguments: Any) -> None:
        with lock:
            vendor(*arguments)

    given = {"choices": {"alternatives": {"vendor": vendor}}}
    assert host.options(**given).miss_action == "background"
    for own in ({"on_miss": "tune"}, {"fallback": BEST}):
        assert host.options(**given, **own).miss_action == "tune"
    at_once = host.resolver(choices={"alternatives": {"vendor": locked}})
    found = at_once.resolve(with_functions(miss(), vendor=locked))
    assert (found.how, found.final) == ("tuned", True)
    # Ranks of a job agree on what is tuned, and would not switch at one launch.
    monkeypatch.setattr("asmtune.runtime.misses.resolver.current_job", lambda: "a job")
    named = with_functions(miss(8192), vendor=vendor)
    assert host.resolver(**given).resolve(named).how == "tuned"


def test_launches_switch_when_the_background_has_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A provisional alternative is planned; a tuned key drops its plan, and so does a busy one."""
    autotuner.backend.cache_clear()
    stream = CurrentStream(lambda: -1, lambda _: 77)
    monkeypatch.setattr(autotuner, "current_stream", lambda: stream)
    calls: list[str] = []
    functions = {
        name: lambda *arguments, name=name: calls.append(name) or vendor(*arguments)
        for name in ("first", "second")
    }
    kernel = asm_autotune([DEFAULT, BEST], ["n"], alternatives=functions)(add)
    x, out, request = torch.ones(64), torch.zeros(64), miss(64)
    misses: list[int] = []
    pick = Choice(DEFAULT.with_alternative("first"), False, "fallback", until_tuned=True)

    def resolved_miss(*_: Any) -> Any:
        misses.append(1)
        return request, pick

    chooser = kernel._chooser
    monkeypatch.setattr(chooser, "_resolve_miss", resolved_miss)

    def launch() -> str:
        kernel[(1,)](x, x, out, 64)
        return calls[-1]

    assert [launch(), launch()] == ["first", "first"]
    assert len(misses) == 1
    chooser._on_background_tuned(request, replace(pick, how="busy"))
    assert [launch(), launch()] == ["first", "first"]
    assert len(misses) == 2
    chooser._on_background_tuned(request, Choice(BEST.with_alternative("second"), True, "tuned"))
    assert [launch(), launch()] == ["second", "second"]
    assert len(misses) == 2
    autotuner.backend.cache_clear()


def test_an_alternative_that_raises_is_not_called_for_a_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the key is tuned the next one serves, or a config; what serves is looked up again."""
    calls: list[str] = []

    def noted(name: str, *raising: str) -> Any:
        def run(*_: Any) -> None:
            calls.append(name)
            if name in raising:
                raise RuntimeError(name)

        return run

    for raising, served in (((), "first"), (("first",), "second"), (("first", "second"), None)):
        functions = {name: noted(name, *raising) for name in ("first", "second")}
        kernel = asm_autotune([DEFAULT], ["n"], alternatives=functions)(add)
        given = {"x": torch.ones(4), "y": torch.ones(4), "out": torch.ones(4), "n": 4}
        call = KernelCall((1,), tuple(given.values()), {}, kernel.arg_names)
        pick = Choice(DEFAULT.with_alternative("first"), False, "fallback", until_tuned=True)
        calls.clear()
        chooser = kernel._chooser
        monkeypatch.setattr(chooser, "_resolve_miss", lambda *_, pick=pick: (None, pick))
        assert chooser.choose(call) == pick
        found = chooser.first_that_serves(call, pick.config, lambda function: function)
        wanted = DEFAULT if served is None else DEFAULT.with_alternative(served)
        assert (found, len(calls)) == (wanted, 2 if raising else 1)
        assert list(kernel.cache.values()) == [wanted]


@pytest.mark.parametrize("native", [False, True])
def test_launches_call_the_winner(native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first launch makes a plan where there is a C part; all launches call the function."""
    if not native:
        monkeypatch.setenv("ASMTUNE_LAUNCH", "python")
    autotuner.backend.cache_clear()
    monkeypatch.setattr(
        autotuner, "current_stream", lambda: CurrentStream(lambda: -1, lambda _: 77)
    )
    calls: list[int] = []

    def counted(*arguments: Any) -> None:
        calls.append(len(arguments))
        vendor(*arguments)

    kernel = asm_autotune([DEFAULT, BEST], ["n"], alternatives={"vendor": counted})(add)
    x, out = torch.ones(64), torch.zeros(64)
    launch = kernel._chooser._memory_key
    seen: list[int] = []
    monkeypatch.setattr(kernel._chooser, "_memory_key", lambda *a: seen.append(1) or launch(*a))
    monkeypatch.setattr(
        kernel._chooser,
        "_resolve_miss",
        lambda *_: (None, Choice(WON, True, "known")),
    )
    grids: list[int] = []

    def grid(meta: Any) -> tuple[int]:
        grids.append(meta["BLOCK"])
        return (1,)

    for _ in range(3):
        assert kernel[grid](x, x, out, 64) is None
        assert torch.equal(out, x + x)
    assert calls == [4, 4, 4]
    assert len(seen) == (1 if native else 3)  # the others were planned
    assert set(grids) == {BEST.kwargs["BLOCK"]}
    assert kernel.best_config == WON
    autotuner.backend.cache_clear()
