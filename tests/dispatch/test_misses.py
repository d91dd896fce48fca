"""From a miss to a config: stores, predictions, small problems, capture."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from asmtune.base.errors import CompileError, MemoryShortError, MissError
from asmtune.core.config import Config
from asmtune.core.hardware.model import LAUNCH_US as LEAST_US
from asmtune.core.records.tuned import Measurement, TuneRecord
from asmtune.core.space.space import Space
from asmtune.runtime.misses import background
from asmtune.runtime.misses.lookups import Choice
from asmtune.runtime.misses.resolver import MissWarning
from asmtune.store import interchange
from asmtune.store.database import Store
from asmtune.store.lookup import StoreWarning
from asmtune.store.trace.reader import read_trace
from asmtune.store.trace.run import run_files
from asmtune.tuning import request
from asmtune.tuning.options import TuneOptions
from asmtune.tuning.request import TuningRequest, provenance
from asmtune.tuning.tuner import Tuner
from tests import tuning_support as support
from tests.dispatch.host import Host, described, miss
from tests.store.store_records import text_of

SLOWEST = Config({"BLOCK": 2048, "FLAW": 0}, num_warps=1)


def store(host: Host) -> Store:
    """The user's store."""
    return Store.open(host.folder / "store.sqlite")


def record(at: TuningRequest, winner: Config, us: float = 5.0) -> TuneRecord:
    """A record that holds for a miss."""
    timed = (Measurement(winner, us, us, us, (us,)),)
    return TuneRecord(at.key, winner, timed, provenance(at.problem, at.space))


def ship(monkeypatch: pytest.MonkeyPatch, *records: TuneRecord) -> None:
    """Has asmtune come with records."""
    text = text_of(records).encode()
    monkeypatch.setattr(interchange, "_files", lambda: {"some.json": text})
    monkeypatch.setattr(interchange, "_parsed", lambda name: interchange.loads(text, name))


def closed(*_: Any) -> Tuner:
    """Stand for a workshop that must not be needed."""
    raise AssertionError("a workshop was opened")


def test_tuned_once_and_known_to_the_next_process(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key is tuned on its first launch; who comes later finds it and opens no workshop."""
    first = host.resolver().resolve(miss())
    assert described(first) == ("tuned", True, support.BEST)
    assert first.record is not None
    assert len(first.record.measurements) > 1
    (path,) = run_files(host.folder / "runs")
    ending = read_trace(path).ending
    assert ending is not None
    assert ending.winner == support.BEST
    monkeypatch.setattr(Tuner, "open", closed)
    assert described(host.resolver().resolve(miss())) == ("known", True, support.BEST)


def test_a_stored_config_has_the_hook_of_its_space(host: Host) -> None:
    """A winner from the store, with a derived cap as well, has the space's `pre_hook` again."""

    def hook(_: Any) -> None: ...

    hooked = Config({"BLOCK": 64}, pre_hook=hook)
    space = Space.from_configs([Config({"BLOCK": 32}), hooked])
    at = miss(space=space)
    for winner in (Config({"BLOCK": 64}), Config({"BLOCK": 64}, maxnreg=128)):
        with store(host) as opened:
            opened.save(record(at, winner))
        found = host.resolver(space=space).resolve(at).config
        assert (found.to_dict(), found.pre_hook) == (winner.to_dict(), hook)


def test_shipped_config_is_used(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is shipped for a key is taken where the user's store does not know it, not else."""
    monkeypatch.setattr(Tuner, "open", closed)
    ship(monkeypatch, record(miss(), SLOWEST))
    assert described(host.resolver().resolve(miss())) == ("known", True, SLOWEST)
    with store(host) as opened:
        opened.save(record(miss(), support.BEST))
    assert host.resolver().resolve(miss()).config == support.BEST


def test_predict_times_nothing_and_is_kept(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first pick is launched untimed; the next process finds it and opens no workshop."""
    first = host.resolver(on_miss="predict").resolve(miss())
    assert (first.how, first.final, host.machine.timed) == ("predicted", True, [])
    assert first.config in miss().space
    monkeypatch.setattr(Tuner, "open", closed)
    again = host.resolver(on_miss="predict").resolve(miss())
    assert described(again) == ("predicted", True, first.config)


@pytest.mark.slow
def test_a_prediction_is_no_record(host: Host, tmp_path: Any) -> None:
    """What is predicted is not listed, exported or taken for tuned; tuning replaces it."""
    host.resolver(on_miss="predict").resolve(miss())
    with store(host) as opened:
        assert opened.records() == []
        assert opened.verify() == []
        assert [found.key for found in opened.predictions()] == [miss().key]
        interchange.write(tmp_path / "out.json", opened.records())
    assert interchange.read(tmp_path / "out.json") == ()
    assert described(host.resolver().resolve(miss())) == ("tuned", True, support.BEST)
    with store(host) as opened:
        assert list(opened.predictions()) == []
        assert [found.winner for found in opened.records()] == [support.BEST]
    found = host.resolver(on_miss="predict").resolve(miss())
    assert described(found) == ("known", True, support.BEST)


def test_nothing_can_be_predicted(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing compiles, the fallback goes on, with one warning that says why."""

    def fails(*_: Any) -> Any:
        raise CompileError("no config of add can run on H200: 3 of 3 fail")

    monkeypatch.setattr("asmtune.tuning.tuner.first_pick", fails)
    resolver = host.resolver(on_miss="predict", fallback=SLOWEST)
    with pytest.warns(MissWarning, match=r"add at n=4096.*nothing can be predicted, no config"):
        found = resolver.resolve(miss())
    assert described(found) == ("fallback", True, SLOWEST)


def test_a_prediction_leaves_the_arguments_alone(host: Host) -> None:
    """What configs' hooks do to the arguments while they are compiled is undone."""
    hooked: list[int] = []

    def hook(values: dict[str, Any]) -> None:
        hooked.append(values["BLOCK"])
        values["out_ptr"].zero_()

    blocks = (128, 256, 512)
    space = Space.from_configs([Config({"BLOCK": b, "FLAW": 0}, pre_hook=hook) for b in blocks])
    at = miss(space=space)
    found = host.resolver(space=space, on_miss="predict").resolve(at)
    assert (found.how, found.config.pre_hook) == ("predicted", hook)
    assert set(hooked) == set(blocks)
    assert bool((at.problem.arguments["out_ptr"] == 7.0).all())
    again = host.resolver(space=space, on_miss="predict").resolve(at)
    assert (again.config, again.config.pre_hook) == (found.config, hook)


def test_raise_names_kernel_key_and_command(host: Host) -> None:
    """With `on_miss="raise"` an unknown key is an error that says how to fill the store."""
    resolver = host.resolver(on_miss="raise")
    with pytest.raises(MissError) as caught:
        resolver.resolve(miss())
    text = str(caught.value)
    assert "tests.tuning_support.add at n=4096, x_ptr fp32" in text
    assert f"`asmtune tune {support.__file__} --shape n=4096`" in text
    with store(host) as opened:
        opened.save(record(miss(), support.BEST))
    assert resolver.resolve(miss()).config == support.BEST


def out_of_memory(*_: Any, **__: Any) -> Any:
    """Find no memory."""
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB.\nOf 2 GiB")


@pytest.mark.parametrize("place", ["open", "launch"])
def test_a_launch_without_memory_to_tune(
    host: Host, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Where memory is short, a launch takes the model's pick, with one warning, for good."""
    if place == "open":
        host.prepared = replace(host.prepared, opener=out_of_memory)
    else:
        monkeypatch.setattr(type(host.machine), "launch", out_of_memory)
    resolver, at = host.resolver(), miss()
    with pytest.warns(MissWarning, match=r"not tuned, memory is short: .*CUDA out of mem") as told:
        choice = resolver.resolve(at)
    assert (choice.how, choice.final, host.machine.timed) == ("predicted", True, [])
    assert len(told) == 1
    assert "\n" not in str(told[0].message)
    with pytest.raises(MemoryShortError, match="tune it before with `asmtune tune`"):
        Tuner.open("", TuneOptions.of({})).resolve(at)


def test_small_is_decided_once(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel shorter than its launch takes the default, which is stored; nothing is compiled."""
    with monkeypatch.context() as patched:
        patched.setattr(Tuner, "open", closed)
        first = host.resolver(skip_tuning_below_us="host").resolve(miss())
    assert described(first) == ("small", True, support.DEFAULT)
    with store(host) as opened:
        (row,) = opened.predictions()
        assert opened.records() == []
    assert (row.is_small, row.config) == (True, support.DEFAULT)
    assert row.predicted_us is not None
    with monkeypatch.context() as patched:
        patched.setattr("asmtune.predict.small.small_us", None)
        again = host.resolver(skip_tuning_below_us="host").resolve(miss())
        assert described(again) == ("small", True, support.DEFAULT)
        below = host.resolver(skip_tuning_below_us=row.predicted_us + 0.01)
        assert below.resolve(miss()).how == "small"
    # Another process's limit may be lower, and the model is not asked by halves.
    assert host.resolver(skip_tuning_below_us=LEAST_US).resolve(miss()).how == "tuned"
    with store(host) as opened:
        assert list(opened.predictions()) == []
    assert host.resolver(skip_tuning_below_us="host").resolve(miss()).how == "known"


def test_small_by_the_default_s_ttir(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the arguments do not tell the work, TTIR does, without sketch or compile."""
    monkeypatch.setattr("asmtune.predict.small._is_told", lambda _: False)
    monkeypatch.setattr("asmtune.predict.prune.front.ProblemAnalysis.verdicts", None)
    found = host.resolver(skip_tuning_below_us="host").resolve(miss())
    assert described(found) == ("small", True, support.DEFAULT)
    assert len(host.opened) == 1


def test_a_small_problem_takes_the_fallback(host: Host) -> None:
    """Below the limit a given fallback goes before the model's pick; nothing is timed."""
    assert described(host.resolver(skip_tuning_below_us=1e6, fallback=SLOWEST).resolve(miss())) == (
        *("fallback", True, SLOWEST),
    )
    assert host.machine.timed == []


@pytest.mark.parametrize("on_miss", ["tune", "predict", "background", "raise"])
def test_capture_only_looks(host: Host, monkeypatch: pytest.MonkeyPatch, on_miss: Any) -> None:
    """While a graph is captured, nothing is compiled, tuned or raised, whatever a miss does."""
    monkeypatch.setattr(Tuner, "open", closed)
    monkeypatch.setattr(background, "tune_later", closed)
    resolver = host.resolver(on_miss=on_miss, fallback=SLOWEST, skip_tuning_below_us="host")
    found = resolver.resolve(miss(), capturing=True)
    assert described(found) == ("fallback", False, SLOWEST)
    with store(host) as opened:
        opened.save(record(miss(), support.BEST))
    assert described(resolver.resolve(miss(), capturing=True)) == ("known", True, support.BEST)


def test_busy_is_not_final(host: Host) -> None:
    """While another process tunes the key, the fallback goes on, and is asked for again."""
    at = miss()
    with store(host) as opened:
        opened.save(record(miss(1 << 20), SLOWEST))
    from asmtune.store.safe_store import SafeStore

    shelf = SafeStore(str(host.folder / "store.sqlite"), wait_s=0.0)
    host.prepared.store = shelf
    resolver = host.resolver()
    with shelf.lease(at.key, provenance(at.problem, at.space)):
        assert described(resolver.resolve(at)) == ("busy", False, support.DEFAULT)
    assert resolver.resolve(at).how == "tuned"


def test_force_tunes_what_is_known(host: Host) -> None:
    """`force` tunes a key again, once a process, but not while capturing."""
    with store(host) as opened:
        opened.save(record(miss(), SLOWEST))
    resolver = host.resolver(choices={"force": True})
    assert resolver.resolve(miss(), capturing=True).config == SLOWEST
    found = resolver.resolve(miss())
    assert described(found) == ("tuned", True, support.BEST)
    assert found.record is not None
    assert 5.0 not in {timing.median_us for timing in found.record.measurements}  # the stored time


HOSTILE = [
    Config({"BLOCK": 1024, "FLAW": 0, "EVIL": 1}, num_warps=8),
    Config({"BLOCK": 1024, "FLAW": 1}, num_warps=8),
    Config({"BLOCK": 4096, "FLAW": 0}, num_warps=8),
    Config({"BLOCK": 1024}, num_warps=8),
    Config({"BLOCK": 1024, "FLAW": 0}, num_warps=32),
    Config({"BLOCK": 1024, "FLAW": 0}, num_warps=8, num_stages=1),
    Config({"BLOCK": 1024, "FLAW": 0}, num_warps=8, num_ctas=2),
    Config({"BLOCK": 1024, "FLAW": 0}, num_warps=8, ir_override="evil.ptx"),
    Config({"BLOCK": 1024, "FLAW": 0, "E\x1b[2J\n": "\x1b]0;x\x07" * 500}, num_warps=8),
]


def hostile(at: TuningRequest, winner: Config) -> TuneRecord:
    """A record whose seals hold, and whose winner no space of the kernel has."""
    return record(at, winner, us=0.001)


def is_stale(host: Host, at: TuningRequest, winner: Config, **options: Any) -> Choice:
    """Resolve a key whose stored winner is told once to be stale, and is not launched."""
    request._warned.clear()
    with pytest.warns(StoreWarning, match="not in the kernel's space .*counts as stale") as caught:
        found = host.resolver(**options).resolve(at)
    assert len([w for w in caught if "stale" in str(w.message)]) == 1
    assert str(caught[0].message).isprintable()
    assert len(str(caught[0].message)) < 1000
    assert found.config.to_dict() != winner.to_dict()
    assert at.space.matching(found.config) is not None
    return found


@pytest.mark.parametrize("winner", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("head", ["", "ANALYZE"])
def test_a_stored_winner_outside_the_space_is_stale(host: Host, winner: Config, head: str) -> None:
    """A valid row with a foreign winner is not launched, whichever way it is read."""
    with store(host) as opened:
        opened.save(hostile(miss(), winner))
        if head:
            opened.transact(lambda c: c.exec_driver_sql(head), writes=True)
    assert is_stale(host, miss(), winner, on_miss="predict").how == "predicted"
    with pytest.raises(MissError):
        host.resolver(on_miss="raise").resolve(miss())


@pytest.mark.slow
def test_a_winner_outside_the_space_is_tuned_anew(host: Host) -> None:
    """With "tune" the foreign record is replaced, by a launch and by `tune()` alike."""
    for _ in range(2):
        with store(host) as opened:
            opened.save(hostile(miss(), HOSTILE[0]))
        found = is_stale(host, miss(), HOSTILE[0])
        assert described(found) == ("tuned", True, support.BEST)
        with store(host) as opened:
            assert [kept.winner for kept in opened.records()] == [support.BEST]
    with store(host) as opened:
        opened.save(hostile(miss(), HOSTILE[-1]))
    request._warned.clear()
    tuner = host.prepared
    with pytest.warns(StoreWarning, match="counts as stale"):
        result = tuner.resolve(tuner.request(miss().problem, miss().key, miss().space))
    assert result.outcome == "tuned"
    assert result.record is not None
    assert result.record.winner == support.BEST


def test_a_foreign_record_that_comes_while_tuning(host: Host) -> None:
    """A foreign record that is stored during a tuning does not take the place of its result."""
    tuner = host.prepared
    at = tuner.request(miss().problem, miss().key, miss().space)

    class Raced(type(tuner.store)):  # type: ignore[misc]
        """A store into which another process puts a record when the lease is taken."""

        def near(self, *args: Any) -> Any:
            """Save a foreign record before the session reads."""
            with store(host) as opened:
                opened.save(hostile(miss(), HOSTILE[0]))
            return super().near(*args)

    raced = replace(tuner, store=Raced(str(host.folder / "store.sqlite")))
    request._warned.clear()
    with pytest.warns(StoreWarning, match="counts as stale"):
        result = raced.resolve(at)
    assert result.record is not None
    assert result.record.winner == support.BEST
