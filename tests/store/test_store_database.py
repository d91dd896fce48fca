"""A sound store, in a file and on a server: what goes in comes out, judged by how it was made."""

from __future__ import annotations

import os
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


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store's path in a folder that is not there yet."""
    return tmp_path / "cache" / "store.sqlite"


@pytest.mark.slow(seconds=2)
@settings(deadline=None, max_examples=60)
@given(record=store_records.records())
def test_any_record_comes_back_equal(shared: Store, record: TuneRecord) -> None:
    """Whatever can be kept is found again equal to the last digit of every sample."""
    shared.save(record)
    found = shared.find(record.key)
    assert found == record
    assert [m.samples_us for m in found.measurements] == [m.samples_us for m in record.measurements]


@settings(deadline=None, max_examples=30)
@given(record=store_records.records())
def test_key_does_not_depend_on_order(record: TuneRecord) -> None:
    """A key has one identity, whatever the order in which its names were given."""
    key = record.key
    turned = replace(
        key,
        shape=dict(reversed(key.shape.items())),
        dtypes=dict(reversed(key.dtypes.items())),
    )
    assert key_digest(turned) == key_digest(key)


def test_each_part_of_the_key_counts(store: Store) -> None:
    """Another kernel, shape, dtype or device is another key."""
    store.save(record())
    changes: list[dict[str, Any]] = [{"shape": {"M": 4096, "causal": 1}}, {"shape": {"M": 4096}}]
    changes += [{"kernel": "pkg.other"}, {"dtypes": {"a": "bf16"}}, {"device": "NVIDIA H100"}]
    assert [c for c in changes if store.find(replace(record().key, **c)) is not None] == []


def test_replaces_the_record_of_the_same_key(store: Store) -> None:
    """A second save leaves nothing of the first: neither its timings nor its failures."""
    config = Config({"BLOCK_M": 32})
    newer = record(winner=config, measurements=(timed(config, 1.0),), failures=())
    store.save(record())
    store.save(newer)
    assert store.records() == [newer]
    assert store.verify() == []


def test_save_all_keeps_all_or_none(store: Store) -> None:
    """One record that cannot be kept keeps the whole batch out."""
    bad = record(2, measurements=(Measurement(record().winner, float("nan"), 1.0, 1.0, ()),))
    with pytest.raises(
        InputError, match=r"^pkg\.matmul: record\.measurements\[0\]\.median_us: expected a"
    ):
        store.save_all([record(1), bad])
    assert store.records() == []
    assert store.save_all([record(1), record(2)]) == 2


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (Config({"ACC": object()}), "ACC"),
        (Config({"SCALE": float("inf")}), "SCALE"),
        (Config({"M": 1 << 64}), "M"),
        (Config.from_dict({"num_warps": 0}), "num_warps"),
        (Config.from_dict({"maxnreg": True}), "maxnreg"),
    ],
)
def test_refuses_what_would_not_come_back(store: Store, config: Config, field: str) -> None:
    """A config value that JSON cannot hold exactly is refused by name, not turned into text."""
    with pytest.raises(InputError, match=rf"winner\.{field}: expected .*, got "):
        store.save(record(winner=config))


def test_hooks_do_not_travel(store: Store) -> None:
    """A config's hook is code, so that it is left out of what is kept."""
    hooked = Config({"BLOCK_M": 64}, pre_hook=print)
    store.save(record(winner=hooked, measurements=(timed(hooked),)))
    found = store.find(record().key)
    assert found is not None
    assert found.winner == Config({"BLOCK_M": 64})


@pytest.mark.parametrize(
    ("changes", "outcome", "detail"),
    [
        (
            {"triton": "3.6.9", "torch": "3.0", "driver": "1", "asmtune": "2", "date": ""},
            "hit",
            "",
        ),
        (
            {"source": "6" * 64},
            "stale",
            "source differs: recorded 555555555555, now 666666666666",
        ),
        ({"space": "b" * 64}, "stale", "space differs: recorded aaaaaaaaaaaa, now bbbbbbbbbbbb"),
        ({"triton": "3.7.0"}, "stale", "triton differs: recorded 3.6, now 3.7"),
        ({"triton": "3.60.0"}, "stale", "triton differs: recorded 3.6, now 3.60"),
        ({"triton": ""}, "stale", "triton differs: recorded 3.6, now none"),
    ],
)
def test_lookup(store: Store, changes: dict[str, str], outcome: str, detail: str) -> None:
    """Another source, space or Triton makes a record stale, which is still handed over.

    Patch level, torch and driver may move. A key that was never saved is a miss.
    """
    assert store.lookup(record().key, PROVENANCE).outcome == "miss"
    store.save(record())
    found = store.lookup(record().key, replace(PROVENANCE, **changes))
    assert (found.outcome, found.record, found.detail) == (outcome, record(), detail)


def test_records_by_kernel_and_device(store: Store) -> None:
    """Filters narrow by exact kernel and device, and the order is stable."""
    other = record(kernel="pkg.softmax")
    there = record(key=replace(record().key, device="NVIDIA B200"))
    store.save_all([other, record(), there])
    assert store.records() == [there, record(), other]
    assert store.records("pkg.matmul") == [there, record()]
    assert store.records(device="NVIDIA H200") == [record(), other]
    assert store.records("pkg.softmax", "NVIDIA B200") == []
    assert store.records("pkg") == []


def test_by_digest_takes_prefixes_literally(store: Store) -> None:
    """A prefix finds its record, and a wildcard of SQL finds nothing."""
    store.save(record())
    assert store.by_digest(key_digest(record().key)[:7]) == [record()]
    assert store.by_digest("%") == []


def test_clear_counts_and_takes_the_timings_along(store: Store) -> None:
    """Clearing returns how many keys went and leaves no row behind."""
    store.save_all([record(1), record(2), record(3, kernel="pkg.softmax")])
    guess = StoredPrediction(record(4).key, record().winner, None, PROVENANCE)
    store.save_prediction(guess)
    assert store.clear(kernel="pkg.matmul", device="NVIDIA H200") == 2
    assert store.records() == [record(3, kernel="pkg.softmax")]
    assert list(store.predictions()) == []
    assert store.verify() == []
    assert store.clear() == 1
    assert store.clear() == 0


def test_private_from_the_start(path: Path) -> None:
    """Folder and file are for their owner alone, whatever the umask.

    So they are where the folder of an open store was deleted, at the next save.
    """
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


def test_path_with_characters_of_a_url(tmp_path: Path) -> None:
    """Question marks, hashes and percent signs in a path are part of its name."""
    path = tmp_path / "a?mode=ro#b%20c" / "store.sqlite"
    with Store.open(path) as store:
        store.save(record())
    assert path.is_file()
    with Store.open(f"sqlite:///{tmp_path}/plain.sqlite") as store:
        store.save(record())
    assert (tmp_path / "plain.sqlite").stat().st_mode & 0o777 == 0o600


def test_key_with_odd_values_is_a_miss(store: Store) -> None:
    """A key that could never have been saved is a miss, not an error."""
    key = TuneKey("k\ud800", {"x": object()}, {}, "d")
    assert store.lookup(key, PROVENANCE).outcome == "miss"
