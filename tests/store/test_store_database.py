"""A sound store, in a file and on a server: what goes in comes out, judged by how it was made."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import store_records
from hypothesis import given, settings
from store_records import PROVENANCE, record, timed

from asmtune.base.errors import InputError
from asmtune.core.config import Config
from asmtune.core.records.tuned import Measurement, TuneKey, TuneRecord
from asmtune.store.codec import key_digest
from asmtune.store.database import Store
from asmtune.store.lookup import StoredPrediction

SMALL_CONFIG = Config({"BLOCK_M": 32})


@pytest.mark.slow(seconds=2)
@settings(deadline=None, max_examples=60)
@given(record=store_records.records())
def test_any_record_comes_back_equal(shared: Store, record: TuneRecord) -> None:
    """Whatever can be kept is found again equal to the last digit of every sample."""
    shared.save(record)
    found = shared.find(record.key)
    assert found == record
    assert [m.samples_us for m in found.measurements] == [m.samples_us for m in record.measurements]


def test_a_record_is_found_by_all_of_its_key(store: Store) -> None:
    """Another kernel, shape, dtype or device is another key; one that cannot be saved is a miss.

    A second save leaves nothing of the first, and a digest's wildcards are no wildcards.
    """
    newer = record(winner=timed(SMALL_CONFIG).config, measurements=(timed(SMALL_CONFIG),))
    store.save(record())
    store.save(newer)
    changes: list[dict[str, Any]] = [{"shape": {"M": 4096, "causal": 1}}, {"shape": {"M": 4096}}]
    changes += [{"kernel": "pkg.other"}, {"dtypes": {"a": "bf16"}}, {"device": "NVIDIA H100"}]
    assert [c for c in changes if store.find(replace(record().key, **c)) is not None] == []
    odd = TuneKey("k\ud800", {"x": object()}, {}, "d")
    assert store.lookup(odd, PROVENANCE).outcome == "miss"
    assert store.by_digest(key_digest(record().key)[:7]) == store.records() == [newer]
    assert store.by_digest("%") == []


def test_what_cannot_be_kept_is_refused(store: Store) -> None:
    """A value that would not come back is named, and keeps its whole batch out."""
    fields = {
        "winner.ACC": Config({"ACC": object()}),
        "winner.SCALE": Config({"SCALE": float("inf")}),
        "winner.M": Config({"M": 1 << 64}),
        "winner.num_warps": Config.from_dict({"num_warps": 0}),
        "winner.maxnreg": Config.from_dict({"maxnreg": True}),
    }
    bad = {name: record(2, winner=config) for name, config in fields.items()}
    nan = Measurement(record().winner, float("nan"), 1.0, 1.0, ())
    bad["measurements[0].median_us"] = record(2, measurements=(nan,))
    for name, one in bad.items():
        with pytest.raises(InputError, match=rf"record\.{re.escape(name)}: expected .*, got "):
            store.save_all([record(1), one])
    assert store.records() == []
    assert store.save_all([record(1), record(2)]) == 2


LOOKUPS: list[tuple[dict[str, str], str, str]] = [
    ({"triton": "3.6.9", "torch": "3.0", "driver": "1", "asmtune": "2", "date": ""}, "hit", ""),
    ({"source": "6" * 64}, "stale", "source differs: recorded 555555555555, now 666666666666"),
    ({"space": "b" * 64}, "stale", "space differs: recorded aaaaaaaaaaaa, now bbbbbbbbbbbb"),
    ({"triton": "3.60.0"}, "stale", "triton differs: recorded 3.6, now 3.60"),
    ({"triton": ""}, "stale", "triton differs: recorded 3.6, now none"),
]


def test_lookup(store: Store) -> None:
    """Another source, space or Triton makes a record stale, which is still handed over.

    Patch level, torch and driver may move. A key that was never saved is a miss.
    """
    assert store.lookup(record().key, PROVENANCE).outcome == "miss"
    store.save(record())
    for changes, outcome, detail in LOOKUPS:
        found = store.lookup(record().key, replace(PROVENANCE, **changes))
        assert (found.outcome, found.record, found.detail) == (outcome, record(), detail)


def test_records_by_kernel_and_device(store: Store) -> None:
    """Filters narrow by exact kernel and device, the order is stable, and clearing counts keys."""
    other = record(kernel="pkg.softmax")
    there = record(key=replace(record().key, device="NVIDIA B200"))
    store.save_all([other, record(), there])
    store.save_prediction(StoredPrediction(record(4).key, record().winner, None, PROVENANCE))
    assert store.records() == [there, record(), other]
    assert store.records("pkg.matmul") == [there, record()]
    assert store.records(device="NVIDIA H200") == [record(), other]
    assert store.records("pkg.softmax", "NVIDIA B200") == store.records("pkg") == []
    assert sorted(store.devices("pkg.matmul")) == ["NVIDIA B200", "NVIDIA H200"]
    assert store.clear(kernel="pkg.matmul", device="NVIDIA H200") == 1
    assert (store.records(), list(store.predictions())) == ([there, other], [])
    assert (store.clear(), store.clear(), store.verify()) == (2, 0, [])


def test_private_from_the_start(tmp_path: Path) -> None:
    """Folder and file are for their owner alone, whatever the umask.

    So they are where the folder of an open store was deleted, at the next save.
    """
    path = tmp_path / "cache" / "store.sqlite"
    before, store = os.umask(0), None
    try:
        for m in (1, 2):
            store = store or Store.open(path)
            store.save(record(m))
            assert store.records() == [record(m)]
            assert path.parent.stat().st_mode & 0o777 == 0o700
            assert {file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {0o600}
            shutil.rmtree(path.parent)
    finally:
        os.umask(before)
