"""Predictions in the store: kept apart from what was tuned, which always goes before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from store_records import PROVENANCE, execute, record

from asmtune.core.config import Config
from asmtune.core.records.tuned import TuneKey
from asmtune.store.database import Store
from asmtune.store.lookup import StoredPrediction

KEY = record().key
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


def test_tuned_replaces_predicted_and_is_not_replaced(where: str) -> None:
    """A prediction is no record and no run; a record ends it, and no new one is kept beside it."""
    with Store.open(where) as store:
        store.save_prediction(GUESS)
        store.save_prediction(guess(1))
        assert store.lookup(KEY, PROVENANCE).outcome == "miss"
        assert (store.records(), store.unfinished(), store.verify()) == ([], [], [])
        assert store.earlier_outcomes(KEY, PROVENANCE).measurements == ()
        store.save(record())
        assert list(store.predictions()) == [guess(1)]
        store.save_prediction(GUESS)
        assert store.find_prediction(KEY, PROVENANCE) is None
        assert store.records() == [record()]
        assert store.save_first(replace(record(), key=guess(1).key)).key == guess(1).key
        assert list(store.predictions()) == []


def test_a_stale_record_does_not_keep_it_out(where: str) -> None:
    """Where the record was made with another source, what is predicted now is kept beside it."""
    now = replace(GUESS, provenance=replace(PROVENANCE, source="0" * 64))
    with Store.open(where) as store:
        store.save(record())
        store.save_prediction(now)
        assert store.find_prediction(KEY, now.provenance) == now
        assert store.records() == [record()]


def test_cleared_by_kernel_and_device(where: str) -> None:
    """Predictions are deleted with the records of a kernel or a device."""
    with Store.open(where) as store:
        for made in (guess(1), guess(2, "NVIDIA L4")):
            store.save_prediction(made)
        store.clear(device="NVIDIA L4")
        assert list(store.predictions()) == [guess(1)]
        store.clear(kernel="pkg.matmul")
        assert list(store.predictions()) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("winner = replace(winner, '32', '64')", "do not match its seal"),
        ("predicted_us = 1.0", "do not match its seal"),
        ("shape = '{}'", "do not match its seal"),
        ("winner = '['", "do not match its seal"),
    ],
)
def test_damage(tmp_path: Path, change: str, problem: str) -> None:
    """A changed row is no prediction, and `verify` names it; the next one replaces it."""
    path = tmp_path / "store.sqlite"
    with Store.open(path) as store:
        store.save_prediction(GUESS)
    execute(path, f"UPDATE predictions SET {change}")
    with Store.open(path) as store:
        assert store.find_prediction(KEY, PROVENANCE) is None
        assert list(store.predictions()) == []
        (finding,) = store.verify()
        assert problem in finding.problem
        store.save_prediction(GUESS)
        assert store.verify() == []
