"""Training rows in the store: added by runs, read newest first, limited, and cleared."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from store_records import record

from asmtune.base.errors import InputError
from asmtune.core.records.tuned import TuneKey
from asmtune.store import rows
from asmtune.store.database import Store
from asmtune.store.lookup import StoredExamples, StoreWarning
from asmtune.store.safe_store import SafeStore


def key(m: int, kernel: str = "pkg.matmul", device: str = "NVIDIA H200") -> TuneKey:
    """A key of a shape."""
    return TuneKey(kernel, {"M": m}, {"a": "fp16"}, device)


def test_own_kernel_first_and_newest_first(where: str) -> None:
    """A kernel's rows come before others', the newest first, and leave no trace elsewhere."""
    with Store.open(where) as store:
        assert store.examples("pkg.matmul") == []
        store.save_examples(key(1), "AAAA")
        store.save_examples(key(2, "pkg.softmax"), "BBBB")
        store.save_examples(key(3), "CCCC")
        assert store.examples("pkg.matmul") == [
            StoredExamples(key(3), "CCCC"),
            StoredExamples(key(1), "AAAA"),
            StoredExamples(key(2, "pkg.softmax"), "BBBB"),
        ]
        assert store.records() == []
        assert store.unfinished() == []
        assert store.verify() == []


def test_a_saved_record_leaves_them(where: str) -> None:
    """Saving a key's record deletes its trials, not its training rows."""
    with Store.open(where) as store:
        store.save_examples(record().key, "AAAA")
        store.save(record())
        assert len(store.examples("pkg.matmul")) == 1


@pytest.mark.slow(seconds=2)
def test_limits(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest runs beyond a number are deleted, of one key and of the whole store."""
    monkeypatch.setattr(rows, "MOST_OF_A_KEY", 2)
    monkeypatch.setattr(rows, "MOST_EXAMPLES", 3)
    with Store.open(where) as store:
        for n in range(3):
            store.save_examples(key(1), f"{n}AAA")
        assert [run.rows for run in store.examples("pkg.matmul")] == ["2AAA", "1AAA"]
        for m in (2, 3):
            store.save_examples(key(m), "BBBB")
        assert [run.key for run in store.examples("pkg.matmul")] == [key(3), key(2), key(1)]


def test_cleared_by_kernel_and_device(where: str) -> None:
    """Training rows are deleted with the records of a kernel or a device."""
    with Store.open(where) as store:
        store.save_examples(key(1), "AAAA")
        store.save_examples(key(1, device="NVIDIA L4"), "BBBB")
        store.clear(device="NVIDIA L4")
        assert [run.key.device for run in store.examples("pkg.matmul")] == ["NVIDIA H200"]
        store.clear(kernel="pkg.matmul")
        assert store.examples("pkg.matmul") == []


def test_damage(tmp_path: Path) -> None:
    """A changed row is left out, and `verify` names it."""
    path = tmp_path / "store.sqlite"
    with Store.open(path) as store:
        store.save_examples(key(1), "AAAA")
        store.save_examples(key(2), "BBBB")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE examples SET rows = 'CCCC' WHERE rows = 'AAAA'")
    with Store.open(path) as store:
        assert [run.key for run in store.examples("pkg.matmul")] == [key(2)]
        (finding,) = store.verify()
        assert "do not match its seal" in finding.problem


def test_what_cannot_be_kept(where: str) -> None:
    """A value that no file can hold is refused, and costs a `SafeStore` one warning."""
    bad = TuneKey("pkg.matmul", {"M": object()}, {}, "NVIDIA H200")
    with Store.open(where) as store, pytest.raises(InputError, match="training rows"):
        store.save_examples(bad, "AAAA")
    safe = SafeStore(where)
    with pytest.warns(StoreWarning, match="it is not kept"):
        safe.save_examples(bad, "AAAA")
    safe.save_examples(key(1), "AAAA")
    assert len(safe.examples("pkg.matmul")) == 1
