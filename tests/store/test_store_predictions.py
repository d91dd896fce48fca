"""What is kept of a key without a record: predictions; and messages with NUL."""

from __future__ import annotations

from dataclasses import replace

from store_records import PROVENANCE, record

from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import TuneKey
from asmtune.store.database import Store
from asmtune.store.lookup import SMALL, StoredPrediction

KEY = record().key


def test_nul_in_a_compilers_message(store: Store) -> None:
    """A failure whose message holds NUL, which PostgreSQL cannot, is kept with it spelled out."""
    config = Config({"BLOCK_M": 512})
    failed = (config, Failure("ptxas", "crash", "died:\0\0"))
    kept = (config, Failure("ptxas", "crash", "died:\\0\\0"))
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
    """A prediction is no record; a record ends it, and no new one is kept beside it."""
    with Store.open(where) as store:
        store.save_prediction(GUESS)
        store.save_prediction(guess(1))
        assert store.lookup(KEY, PROVENANCE).outcome == "miss"
        assert (store.records(), store.verify()) == ([], [])
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
