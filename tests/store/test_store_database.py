"""A sound store, in a file and on a server: what goes in comes out, judged by how it was made."""

from __future__ import annotations

import os
import subprocess
import sys
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


@pytest.mark.parametrize(
    "change",
    [
        {"kernel": "pkg.other"},
        {"shape": {"M": 4096, "causal": 1}},
        {"shape": {"M": 4096}},
        {"dtypes": {"a": "bf16"}},
        {"device": "NVIDIA H100"},
    ],
)
def test_each_part_of_the_key_counts(store: Store, change: dict[str, Any]) -> None:
    """Another kernel, shape, dtype or device is another key."""
    store.save(record())
    assert store.find(replace(record().key, **change)) is None


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


def test_lookup_hit(store: Store) -> None:
    """A record made as it would be made now is a hit; patch level, torch and driver may move."""
    store.save(record())
    now = replace(PROVENANCE, triton="3.6.9", torch="3.0", driver="1", asmtune="2", date="")
    found = store.lookup(record().key, now)
    assert (found.outcome, found.record, found.detail) == ("hit", record(), "")


def test_lookup_miss(store: Store) -> None:
    """A key that was never saved is a miss that names the kernel."""
    found = store.lookup(record().key, PROVENANCE)
    assert (found.outcome, found.record) == ("miss", None)
    assert "pkg.matmul" in found.detail


@pytest.mark.parametrize(
    ("field", "value", "detail"),
    [
        ("source", "6" * 64, "source differs: recorded 555555555555, now 666666666666"),
        ("space", "b" * 64, "space differs: recorded aaaaaaaaaaaa, now bbbbbbbbbbbb"),
        ("triton", "3.7.0", "triton differs: recorded 3.6, now 3.7"),
        ("triton", "3.60.0", "triton differs: recorded 3.6, now 3.60"),
        ("triton", "", "triton differs: recorded 3.6, now none"),
    ],
)
def test_lookup_stale(store: Store, field: str, value: str, detail: str) -> None:
    """A record of another source, space or Triton is stale, says so and is still handed over."""
    store.save(record())
    found = store.lookup(record().key, replace(PROVENANCE, **{field: value}))
    assert (found.outcome, found.record, found.detail) == ("stale", record(), detail)


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
    assert store.clear(kernel="pkg.matmul", device="NVIDIA H200") == 2
    assert store.records() == [record(3, kernel="pkg.softmax")]
    assert store.verify() == []
    assert store.clear() == 1
    assert store.clear() == 0


def test_private_from_the_start(path: Path) -> None:
    """Folder and file are for their owner alone, whatever the umask."""
    before = os.umask(0)
    try:
        with Store.open(path) as store:
            store.save(record())
    finally:
        os.umask(before)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert modes[path.name] == 0o600
    assert set(modes.values()) == {0o600}


def test_made_again_if_deleted_while_open(path: Path) -> None:
    """A store whose folder is deleted under it starts afresh, private again, at the next save."""
    store = Store.open(path)
    store.save(record(1))
    for file in path.parent.iterdir():
        file.unlink()
    path.parent.rmdir()
    store.save(record(2))
    assert store.records() == [record(2)]
    assert path.stat().st_mode & 0o777 == 0o600


def test_path_with_characters_of_a_url(tmp_path: Path) -> None:
    """Question marks, hashes and percent signs in a path are part of its name."""
    path = tmp_path / "a?mode=ro#b%20c" / "store.sqlite"
    with Store.open(path) as store:
        store.save(record())
    assert path.is_file()
    with Store.open(f"sqlite:///{tmp_path}/plain.sqlite") as store:
        store.save(record())
    assert (tmp_path / "plain.sqlite").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "url", ["sqlite://", "nosuchdb://host/x", "://", "mysql://me:secret@host/x"]
)
def test_url_that_names_no_driver(url: str) -> None:
    """A URL that cannot be served is the user's error, in one line and without the password."""
    with pytest.raises(InputError, match="give the path of a file") as caught:
        Store.open(url)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_import_is_light() -> None:
    """Importing the store loads no database code, and no lookup of what is shipped does."""
    code = (
        "import sys; from asmtune.store.shipped import find_tuned\n"
        "from asmtune.core.records.tuned import TuneKey, Provenance\n"
        "find_tuned(TuneKey('k', {}, {}, 'd'), Provenance(*'abcdefg'), None)\n"
        "heavy = {'sqlalchemy', 'torch', 'triton', 'sklearn', 'rich', 'numpy'}\n"
        "sys.exit(repr(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_key_with_odd_values_is_a_miss(store: Store) -> None:
    """A key that could never have been saved is a miss, not an error."""
    key = TuneKey("k\ud800", {"x": object()}, {}, "d")
    assert store.lookup(key, PROVENANCE).outcome == "miss"
