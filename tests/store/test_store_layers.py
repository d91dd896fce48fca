"""The shipped layer, and lookups through both layers."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from store_records import PROVENANCE, record

from asmtune.base.errors import InputError
from asmtune.core.config import Config
from asmtune.core.records.tuned import TuneRecord
from asmtune.store import interchange
from asmtune.store.database import Store
from asmtune.store.interchange import (
    find_tuned,
    shipped_lookup,
    shipped_of,
    shipped_records,
)
from asmtune.store.lookup import StoreLookup

NOW = replace(PROVENANCE, triton="3.6.1")
STALE = replace(PROVENANCE, source="0" * 64)

Ship = Callable[..., Path]


def forget_shipped() -> None:
    """Have the files read again when they are next needed."""
    for function in (interchange._files, interchange._parsed):
        function.cache_clear()


@pytest.fixture
def ship(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ship]:
    """Stand a package `asmtune.shipped` up that holds the given records by file."""
    folder = tmp_path / "shipped"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "README.md").write_text("not JSON")
    spec = importlib.util.spec_from_file_location(
        "asmtune.shipped", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert isinstance(spec, importlib.machinery.ModuleSpec)
    monkeypatch.setitem(sys.modules, "asmtune.shipped", importlib.util.module_from_spec(spec))

    def put(**by_file: list[TuneRecord]) -> Path:
        for name, records in by_file.items():
            interchange.write(folder / f"{name}.json", records, samples=True)
        forget_shipped()
        return folder

    forget_shipped()
    yield put
    forget_shipped()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store of the user's."""
    return Store.open(tmp_path / "cache" / "store.sqlite", on_corrupt="set_aside")


def winner(value: int) -> dict[str, object]:
    """Return changes that give a record another winner."""
    config = Config({"BLOCK_M": value})
    timing = replace(record().measurements[0], config=config, samples_us=())
    return {"winner": config, "measurements": (timing,)}


def test_what_is_shipped(ship: Ship, monkeypatch: pytest.MonkeyPatch) -> None:
    """All files are read, in order of their names, once; records are judged as the user's are.

    A key that ships for two versions of Triton gives the record that holds.
    """
    old = record(1, **winner(35), provenance=replace(PROVENANCE, triton="3.5.0"))
    new, other = record(1, **winner(36)), record(3, **winner(3))
    folder = ship(b=[new], a=[old, other])
    assert shipped_records() == (old, other, new)
    (folder / "a.json").unlink()
    assert len(shipped_records()) == 3
    for now, kept in ((NOW, new), (replace(NOW, triton="3.5.2"), old)):
        assert shipped_lookup(new.key, now) == StoreLookup("hit", kept, layer="shipped")
    stale = shipped_lookup(other.key, STALE)
    assert (stale.outcome, stale.layer) == ("stale", "shipped")
    assert stale.detail == "source differs: recorded 555555555555, now 000000000000"
    assert shipped_lookup(record(2).key, NOW).outcome == "miss"
    monkeypatch.setitem(sys.modules, "asmtune.shipped", None)  # a source tree, not installed
    forget_shipped()
    assert shipped_records() == ()


def test_only_files_of_the_kernel_are_parsed(ship: Ship) -> None:
    """A launch of one kernel is not held up by the files of others, malformed ones included."""
    folder = ship(a=[record(1, **winner(1)), record(9, kernel="pkg.other", **winner(9))])
    (folder / "bad.json").write_text('{"kernel": "pkg.third"}')
    forget_shipped()
    assert [r.key.shape["M"] for r in shipped_of("pkg.other")] == [9]
    assert shipped_lookup(record(1).key, NOW).outcome == "hit"
    with pytest.raises(InputError, match=r"^asmtune\.shipped/bad\.json"):
        shipped_of("pkg.third")


def test_the_layers_in_their_order(ship: Ship, store: Store) -> None:
    """The user's hit goes first, then a shipped hit; without one the user's stale record speaks."""
    key, mine, theirs = record(1).key, record(1, **winner(2)), record(1, **winner(1))
    ship(a=[theirs])
    for own in (store, None):
        assert find_tuned(key, NOW, own) == StoreLookup("hit", theirs, layer="shipped")
    assert find_tuned(key, STALE, store).layer == "shipped"
    assert find_tuned(record(9).key, NOW, store).outcome == "miss"
    store.save(mine)
    assert find_tuned(key, NOW, store) == StoreLookup("hit", mine)
    found = find_tuned(key, STALE, store)
    assert (found.outcome, found.layer, found.record) == ("stale", "store", mine)
    store.save(replace(mine, provenance=STALE))
    assert find_tuned(key, NOW, store) == StoreLookup("hit", theirs, layer="shipped")
    newer = replace(NOW, triton="3.9.0")  # what is shipped is the only candidate; then the user's
    assert find_tuned(key, newer, store) == StoreLookup(
        "stale", theirs, "triton differs: recorded 3.6, now 3.9", "shipped", is_candidate=True
    )
    store.save(mine)
    assert find_tuned(key, newer, store).record == mine
