"""Stores where nothing can be written: a read-only mount, another user's folder, an export."""

from __future__ import annotations

import os
import subprocess
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from children import as_nobody
from store_records import PROVENANCE, record

from asmtune.base.errors import StoreError
from asmtune.store.database import Store
from asmtune.store.lookup import StoreWarning, fast_lookup
from asmtune.store.safe_store import SafeStore

KEY = record().key
RECORDS = [record(), record(1)]


@pytest.fixture
def folder(open_folder: Path) -> Iterator[Path]:
    """A folder that the test may make read-only by a mount, which is undone at its end."""
    made = open_folder / "shipped"
    made.mkdir(mode=0o755)
    yield made
    subprocess.run(["umount", str(made)], capture_output=True, check=False)


def mounted(folder: Path) -> None:
    """Make a folder a read-only mount of itself."""
    for options in ("bind", "remount,bind,ro"):
        done = subprocess.run(
            ["mount", "-o", options, str(folder), str(folder)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            pytest.skip(f"nothing may be mounted here: {done.stderr.strip()}")


def owned(folder: Path) -> None:
    """Take the rights to write a folder and its file away from all but root."""
    for path in (folder, *folder.iterdir()):
        path.chmod(0o555 if path.is_dir() else 0o444)


def used(path: Path) -> None:
    """Make a store as tuning does, readable by all."""
    with Store.open(path) as store:
        store.save_all(RECORDS)
    path.chmod(0o644)


def serves(path: Path) -> None:
    """The store is read in each way without a word, and refuses to be written in one line."""
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fast_lookup(str(path), KEY, PROVENANCE).seen is not None
        assert fast_lookup(str(path), record(9).key, PROVENANCE).sure
        safe = SafeStore(str(path))
        assert safe.lookup(KEY, PROVENANCE).outcome == "hit"
        assert len(safe.records()) == 2
        assert safe.find_prediction(KEY, PROVENANCE) is None
        with Store.open(path) as store:
            assert store.verify() == []
    with pytest.raises(StoreError, match="read-only here: make the file and its folder writable"):
        Store.open(path).save(record(2))
    with pytest.warns(StoreWarning, match="read-only .*; going on without saving") as caught:
        safe.save(record(2))
    with safe.lease(record(2).key, PROVENANCE) as lease:
        assert lease.mine
    assert len(caught) == 1
    assert safe.lookup(KEY, PROVENANCE).outcome == "hit"
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before


@pytest.mark.parametrize("close", [mounted, owned])
@pytest.mark.parametrize("run", [as_nobody, lambda work: work() or ""])
def test_read_where_nothing_can_be_written(
    folder: Path,
    close: Callable[[Path], None],
    run: Callable[[Callable[[], None]], str],
) -> None:
    """On a read-only mount, and as another user, a store serves by both lookups."""
    if close is owned and run is not as_nobody and os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    path = folder / "server.sqlite"
    used(path)
    for lock in folder.glob("*.lock"):
        lock.unlink()
    close(folder)
    assert run(lambda: serves(path)) == ""
