"""A record of another Triton: its winner is launched at once, its fastest are timed first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from asmtune.base.errors import MissError
from asmtune.core.config import Config
from asmtune.core.records.tuned import Measurement, TuneRecord
from asmtune.runtime.misses.lookups import Choice
from asmtune.runtime.misses.resolver import MissWarning, Resolver
from asmtune.store.database import Store
from asmtune.tuning.request import RETIMED, TuningRequest
from asmtune.tuning.tuner import Tuner
from tests import tuning_support as support
from tests.dispatch.host import Host, Told, described, miss
from tests.dispatch.test_misses import closed, ship, store

OTHER = "3.1.0"
SECOND = Config({"BLOCK": 1024, "FLAW": 0}, num_warps=4)


def earlier(at: TuningRequest, *configs: Config, triton: str = OTHER) -> TuneRecord:
    """A record of another Triton, the fastest config first."""
    timed = tuple(
        Measurement(c, us, us, us, (us,)) for us, c in enumerate(map(plain, configs), start=3)
    )
    return TuneRecord(at.key, timed[0].config, timed, replace(at.expected, triton=triton))


def plain(config: Config) -> Config:
    """A config as a store holds it."""
    return Config.from_dict(config.to_dict())


def block(size: int, warps: int = 4) -> Config:
    """A config of the usual space."""
    return Config({"BLOCK": size, "FLAW": 0}, num_warps=warps)


@pytest.fixture
def upgraded(host: Host) -> Host:
    """A host whose store has a record of another Triton: ten configs, not with the best first."""
    blocks = (128, 1024, 512, 256, 2048)
    configs = [block(size, warps) for warps in (4, 8) for size in blocks]
    with store(host) as opened:
        opened.save(earlier(miss(), *configs))
    return host


def test_the_fastest_are_timed_in_the_place_of_a_search(upgraded: Host) -> None:
    """A launch that tunes times the default and the record's six fastest; both records are kept."""
    found = upgraded.resolver().resolve(miss())
    assert described(found) == ("tuned", True, SECOND)  # BEST is the seventh
    assert found.record is not None
    assert len(found.record.measurements) == RETIMED
    assert set(upgraded.machine.timed) <= {block(s) for s in (128, 1024, 512, 256, 2048)} | {
        block(128, 8)
    }
    with store(upgraded) as opened:
        kept = {one.provenance.triton: one.winner for one in opened.records()}
    assert kept == {OTHER: block(128), miss().expected.triton: SECOND}
    assert described(upgraded.resolver().resolve(miss())) == ("known", True, SECOND)


def test_what_was_won_is_told(upgraded: Host) -> None:
    """A tuner's result names the record whose fastest were timed; `force` searches everything."""
    tuner = upgraded.prepared
    at = tuner.request(miss().problem, miss().key, miss().space)
    result = tuner.resolve(at)
    assert result.earlier is not None
    assert (result.earlier.provenance.triton, result.earlier.median_us) == (OTHER, 3)
    assert result.request is at
    forced = replace(tuner, options=replace(tuner.options, force=True)).resolve(at)
    assert forced.earlier is None
    assert forced.record is not None
    assert forced.record.winner == support.BEST


def test_the_default_is_always_timed(host: Host) -> None:
    """A record without the default has it timed too, so that tuning makes no kernel slower."""
    with store(host) as opened:
        opened.save(earlier(miss(), block(128, 1), block(2048, 1)))
    assert described(host.resolver().resolve(miss())) == ("tuned", True, support.DEFAULT)


@pytest.mark.parametrize("on_miss", ["tune", "predict", "background"])
def test_a_record_whose_configs_compile_no_more(host: Host, told: Told, on_miss: Any) -> None:
    """The space is searched, or the model asked, as if there were no record."""
    broken = Config({"BLOCK": 1 << 21, "FLAW": 0}, num_warps=4)  # Triton's limit is 1 << 20
    axes = {"BLOCK": (256, 1024, 1 << 21), "FLAW": (0,), "num_warps": (4, 8)}
    space = type(support.space())(axes, default=support.DEFAULT)
    at = miss(space=space)
    with store(host) as opened:
        opened.save(earlier(at, broken))
    resolver = Resolver(host.options(on_miss=on_miss, space=space), told)
    found = resolver.resolve(at)
    if on_miss == "background":
        assert described(found) == ("fallback", False, support.DEFAULT)
        found = told.next()
    assert found.how == ("predicted" if on_miss == "predict" else "tuned")
    if found.how == "tuned":
        assert found.config == support.BEST


def test_a_config_that_the_space_has_no_more(host: Host) -> None:
    """What left the space, or never was in it, is left out of what is timed."""
    with store(host) as opened:
        opened.save(earlier(miss(), block(64), block(128, 16)))
    assert described(host.resolver().resolve(miss())) == ("tuned", True, support.BEST)


def test_predict_launches_the_winner_at_once(
    upgraded: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is provisional, with one notice that says what to do, and times nothing.

    The next process opens no workshop for it.
    """
    resolver = upgraded.resolver(on_miss="predict")
    with pytest.warns(MissWarning, match=rf"the winner of triton {OTHER}.*`asmtune tune`") as seen:
        assert described(resolver.resolve(miss())) == ("provisional", True, block(128))
    assert len(seen) == 1
    assert upgraded.machine.timed == []
    monkeypatch.setattr(Tuner, "open", closed)
    again = upgraded.resolver(on_miss="predict").resolve(miss())
    assert described(again) == ("predicted", True, block(128))


def test_the_winner_may_be_an_alternative(host: Host) -> None:
    """A function that won under another Triton is called, where the code still has it."""
    at = replace(miss(), choices={"alternatives": {"other": print}})
    record = earlier(at, block(128))
    named = plain(block(128)).with_alternative("other")
    timed = (*record.measurements, Measurement(named, 1.0, 1.0, 1.0, (1.0,)))
    with store(host) as opened:
        opened.save(replace(record, winner=named, measurements=timed))
    for asked, config in ((at, named), (miss(), block(128))):
        resolver = host.resolver(on_miss="predict", choices=dict(asked.choices))
        with pytest.warns(MissWarning, match="provisional"):
            assert described(resolver.resolve(asked)) == ("provisional", True, config)
        with store(host) as opened:
            opened.transact(lambda c: c.exec_driver_sql("DELETE FROM predictions"), writes=True)


@pytest.mark.filterwarnings("error")
def test_background_launches_the_winner_until_it_is_timed(upgraded: Host, told: Told) -> None:
    """The winner is launched at once; the record's fastest are timed meanwhile, without notice."""
    resolver = Resolver(upgraded.options(on_miss="background"), told)
    assert described(resolver.resolve(miss())) == ("provisional", False, block(128))
    assert described(told.next()) == ("tuned", True, SECOND)
    assert described(resolver.resolve(miss())) == ("tuned", True, SECOND)


def test_a_small_problem_keeps_the_winner(upgraded: Host) -> None:
    """What is not worth timing launches another Triton's winner, not the default."""
    with pytest.warns(MissWarning, match="provisional"):
        found = upgraded.resolver(skip_tuning_below_us=1e6).resolve(miss())
    assert described(found) == ("small", True, block(128))
    assert upgraded.machine.timed == []


def test_raise_says_that_another_triton_knows_it(upgraded: Host) -> None:
    """A key that only another Triton has tuned is raised, with the version and the command."""
    with pytest.raises(MissError, match=rf"of triton {OTHER} alone.*`asmtune tune "):
        upgraded.resolver(on_miss="raise").resolve(miss())


def test_outputs_that_must_be_checked_are(upgraded: Host) -> None:
    """Where outputs must equal the default's, no config of another Triton runs unchecked."""
    resolver = upgraded.resolver(on_miss="predict", choices={"check": "bits"})
    at = replace(miss(), choices={"check": "bits"})
    with store(upgraded) as opened:
        opened.save(earlier(at, block(128)))
    assert described(resolver.resolve(at)) == ("fallback", True, support.DEFAULT)


def test_what_ships_is_a_candidate(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shipped record of another Triton counts where the user has none of any."""
    ship(monkeypatch, earlier(miss(), block(128), SECOND))
    found = host.resolver().resolve(miss())
    assert described(found) == ("tuned", True, SECOND)
    with Store.open(host.folder / "store.sqlite") as opened:
        opened.clear()
        opened.save(earlier(miss(), block(2048, 1), triton="3.2.0"))
    choice: Choice = host.resolver().resolve(miss())
    assert choice.config == support.DEFAULT
