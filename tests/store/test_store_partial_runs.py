"""What is kept of a key without a record: timings of runs that have not ended, and predictions."""

from __future__ import annotations

from dataclasses import replace

import pytest
import store_records
from hypothesis import given, settings
from store_records import PROVENANCE, record, timed

from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement, TuneKey, TuneRecord
from asmtune.store.codec import config_text
from asmtune.store.database import Store
from asmtune.store.lookup import SMALL, EarlierOutcomes, StoredPrediction

KEY = record().key
GROWN = replace(PROVENANCE, space="b" * 64)
ONE, TWO, THREE = (timed(Config({"BLOCK_M": 16 << n}), 10.0 + n) for n in range(3))
BROKEN = (Config({"BLOCK_M": 512}), Failure("ptxas", "registers", "too many\nat line 3"))


def test_another_process_goes_on_with_them(where: str, store: Store) -> None:
    """What one process remembers, batch by batch, the next finds, without a record."""
    store.save_outcomes(KEY, PROVENANCE, [ONE])
    store.save_outcomes(KEY, PROVENANCE, [TWO], [BROKEN])
    with Store.open(where) as other:
        assert other.earlier_outcomes(KEY, GROWN) == EarlierOutcomes((ONE, TWO), (BROKEN,))
        assert other.find(KEY) is None
        assert other.lookup(KEY, PROVENANCE).outcome == "miss"
        assert other.verify() == []


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(made=store_records.records())
def test_any_outcome_comes_back_equal(shared: Store, made: TuneRecord) -> None:
    """Whatever a record can hold is remembered to the last digit, the newest of each config."""
    shared.clear()
    shared.save_outcomes(made.key, made.provenance, made.measurements, made.failures)
    newest: dict[str, object] = {config_text(m.config): m for m in made.measurements}
    newest |= {config_text(failed[0]): failed for failed in made.failures}
    known = shared.earlier_outcomes(made.key, made.provenance)
    assert [*known.measurements, *known.failures] == [
        *(outcome for outcome in newest.values() if isinstance(outcome, Measurement)),
        *(outcome for outcome in newest.values() if not isinstance(outcome, Measurement)),
    ]


def test_what_must_agree(store: Store) -> None:
    """Timings hold for the same source and Triton's major.minor, whatever the space.

    When the space grows, the record's serve as well, and a newer outcome goes before them.
    """
    store.save(record())
    known = store.earlier_outcomes(KEY, replace(GROWN, triton="3.6.9", torch="9", driver="1"))
    assert known == EarlierOutcomes(record().measurements, record().failures)
    assert store.earlier_outcomes(KEY, PROVENANCE) == EarlierOutcomes()  # the record is the answer
    again = timed(record().winner, 1.0)
    store.save_outcomes(KEY, GROWN, [timed(again.config, 5.0), THREE, TWO])
    store.save_outcomes(KEY, GROWN, [again], [(TWO.config, BROKEN[1])])
    known = store.earlier_outcomes(KEY, GROWN)
    assert set(known.measurements) == {again, record().measurements[1], THREE}
    assert (TWO.config, BROKEN[1]) in known.failures
    for other in ({"source": "6" * 64}, {"triton": "3.7.0"}):
        assert store.earlier_outcomes(KEY, replace(GROWN, **other)) == EarlierOutcomes()


def test_saving_ends_the_run(store: Store) -> None:
    """A key's record takes the place of what was remembered of it; other keys keep theirs."""
    other = record(1).key
    store.save_outcomes(KEY, PROVENANCE, [ONE, TWO], [BROKEN])
    store.save_outcomes(other, PROVENANCE, [THREE])
    store.save(record())
    assert store.earlier_outcomes(KEY, PROVENANCE) == EarlierOutcomes()
    store.save_outcomes(KEY, PROVENANCE, [ONE])
    assert store.save_first(record(failures=())) == record()
    assert store.earlier_outcomes(KEY, PROVENANCE) == EarlierOutcomes()
    assert store.earlier_outcomes(other, PROVENANCE).measurements == (THREE,)
    store.clear("pkg.matmul")
    assert store.earlier_outcomes(other, PROVENANCE) == EarlierOutcomes()


def test_nul_in_a_compilers_message(store: Store) -> None:
    """A failure whose message holds NUL, which PostgreSQL cannot, is kept with it spelled out."""
    failed = (BROKEN[0], Failure("ptxas", "crash", "died:\0\0"))
    kept = (BROKEN[0], Failure("ptxas", "crash", "died:\\0\\0"))
    store.save_outcomes(KEY, PROVENANCE, [], [failed])
    assert store.earlier_outcomes(KEY, PROVENANCE).failures == (kept,)
    store.save(record(failures=(failed,)))
    assert store.records() == [record(failures=(kept,))]


GUESS = StoredPrediction(KEY, Config({"BLOCK_M": 32, "EVEN": True}, maxnreg=96), 6.25, PROVENANCE)


def guess(m: int, device: str = "NVIDIA H200") -> StoredPrediction:
    """A prediction of another shape."""
    return replace(GUESS, key=TuneKey("pkg.matmul", {"M": m}, {}, device))


def test_kept_and_found(where: str) -> None:
    """What is kept is found as it was, with or without a time, until it no longer holds."""
    with Store.open(where) as store:
        assert store.find_prediction(KEY, PROVENANCE) is None
        for made in (GUESS, replace(GUESS, predicted_us=None)):
            store.save_prediction(made)
            assert store.find_prediction(KEY, PROVENANCE) == made
        assert store.find_prediction(KEY, replace(PROVENANCE, space="b" * 64)) is None
        assert list(store.predictions()) == [replace(GUESS, predicted_us=None)]


def test_small_holds_in_any_space(where: str) -> None:
    """What was found small holds in each space, with the same source, until the key is tuned."""
    small = replace(GUESS, provenance=replace(PROVENANCE, space=SMALL))
    with Store.open(where) as store:
        store.save_prediction(small)
        for space in ("b" * 64, PROVENANCE.space):
            assert store.find_prediction(KEY, replace(PROVENANCE, space=space)) == small
        assert store.find_prediction(KEY, replace(PROVENANCE, source="b" * 64)) is None
        assert store.verify() == []
        store.save(record())
        assert list(store.predictions()) == []


def test_tuned_replaces_predicted_and_is_not_replaced(where: str) -> None:
    """A prediction is no record and no run; a record ends it, and no new one is kept beside it."""
    with Store.open(where) as store:
        store.save_prediction(GUESS)
        store.save_prediction(guess(1))
        assert store.lookup(KEY, PROVENANCE).outcome == "miss"
        assert (store.records(), store.verify()) == ([], [])
        assert store.earlier_outcomes(KEY, PROVENANCE).measurements == ()
        store.save(record())
        assert list(store.predictions()) == [guess(1)]
        store.save_prediction(GUESS)
        assert store.find_prediction(KEY, PROVENANCE) is None
        assert store.records() == [record()]
        assert store.save_first(replace(record(), key=guess(1).key)).key == guess(1).key
        assert list(store.predictions()) == []
        now = replace(GUESS, provenance=replace(PROVENANCE, source="0" * 64))
        store.save_prediction(now)  # the record is stale now, and stays
        assert store.find_prediction(KEY, now.provenance) == now
        assert record() in store.records()
