"""The rules of `tests/conftest.py`: which artifacts are kept, and in which order tests run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import conftest


def test_artifacts_are_kept_for_each_version_of_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder stays the same until a file changes that decides what an artifact holds."""
    monkeypatch.setattr(conftest, "ROOT", tmp_path)
    monkeypatch.setattr(conftest, "KEPT", tmp_path / "kept")
    for part in conftest.COMPILING:
        assert (Path(__file__).parents[1] / part).exists(), part
    (tmp_path / "asmtune/compile").mkdir(parents=True)
    (tmp_path / "asmtune/compile/lower.py").write_text("a")
    monkeypatch.setattr(conftest, "COMPILING", ("asmtune/compile",))
    first = conftest.kept_folder()
    assert (first / "artifacts").is_dir()
    assert conftest.kept_folder() == first
    (tmp_path / "asmtune/compile/lower.py").write_text("b")
    assert conftest.kept_folder() != first


class Item:
    """A collected test, as far as its order needs it."""

    def __init__(self, name: str, fixtures: tuple[str, ...] = (), **slow: float) -> None:
        self.name, self.fixturenames, self.marks = name, fixtures, []
        if slow:
            self.marks.append(SimpleNamespace(kwargs=slow))

    def add_marker(self, name: str) -> None:
        """Mark it, as slow without a number."""
        assert name == "slow"
        self.marks.append(SimpleNamespace(kwargs={}))

    def get_closest_marker(self, _: str) -> Any:
        """Return its mark."""
        return self.marks[0] if self.marks else None


def test_the_longest_start_first() -> None:
    """Slow tests go first, the longest at the front; one that needs a server is slow."""
    items: list[Any] = [
        Item("a"),
        Item("stored", ("postgres",)),
        Item("long", seconds=20.0),
        Item("b"),
    ]
    conftest.pytest_collection_modifyitems(items)
    assert [item.name for item in items] == ["long", "stored", "a", "b"]
