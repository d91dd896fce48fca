"""A cache folder that cannot be used is told once, whichever of its parts comes first."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import pytest

from asmtune.base.settings import Settings
from asmtune.compile.artifacts import ArtifactCache
from asmtune.store.safe_store import SafeStore
from tests.test_trace import write_run

PARTS: dict[str, Callable[[Settings], object]] = {
    "store": lambda settings: SafeStore(settings.store_where).records("kernel"),
    "artifact folder": lambda settings: ArtifactCache.of(settings).prepare(),
    "folder of runs": lambda settings: write_run(settings.runs_dir),
}


def warned(settings: Settings, *parts: str) -> list[str]:
    """Use parts of a cache folder, and return the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for part in parts:
            PARTS[part](settings)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("parts", list(permutations(PARTS)), ids=" ".join)
def test_one_line(parts: tuple[str, ...], tmp_path: Path) -> None:
    """A file in the place of the folder gives one line, from the first part that needs it."""
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "absent"
    (line,) = warned(Settings(cache_dir=folder), *parts)
    assert line.startswith(f"{parts[0]} {folder}/")
    assert ": Not a directory; a file is where a folder should be: move it away" in line
    assert "set ASMTUNE_CACHE_DIR" in line
    assert "to another place; " in line


def test_faults_of_their_own(tmp_path: Path) -> None:
    """In a folder that can be written, each part that cannot is told."""
    for name in ("artifacts", "runs"):
        (tmp_path / name).write_text("")
    lines = warned(Settings(cache_dir=tmp_path), *PARTS)
    assert [line.split(" /")[0] for line in lines] == ["artifact folder", "folder of runs"]
