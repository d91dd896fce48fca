"""The rules of `tests/conftest.py`: which artifacts are kept."""

from __future__ import annotations

from pathlib import Path

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
