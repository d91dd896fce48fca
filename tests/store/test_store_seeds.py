"""The folder of seeds: entries of one key are merged, and what cannot be read holds none."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from asmtune.core.config import Config
from asmtune.core.records.tuned import TuneKey
from asmtune.store.seeds import KeyedConfigs, SeedFolder

MATMUL, H200 = "pkg.matmul", "NVIDIA H200"


def block(size: int) -> Config:
    """A config of one axis."""
    return Config({"BLOCK": size})


def test_seeds_of_one_key_are_merged_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each config is written as text once, however many entries of its key a file has."""
    calls = []
    monkeypatch.setattr(
        "asmtune.store.seeds.config_text", lambda config: calls.append(config) or str(config)
    )
    key = TuneKey(MATMUL, {}, {}, H200)
    entries = [KeyedConfigs(key, (block(64 + n % 150),)) for n in range(300)]
    folder = SeedFolder(tmp_path / "seeds")
    assert folder.add(entries) == 150
    (merged,) = folder.of(MATMUL)
    assert merged.configs == tuple(block(64 + n) for n in range(150))
    assert len(calls) == 300


def test_seeds_of_a_folder_that_cannot_be_read(tmp_path: Path) -> None:
    """A file in the folder's place holds no seeds; other errors are told alike for all kernels."""
    (tmp_path / "file").touch()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert SeedFolder(tmp_path / "file").of(MATMUL) == []
        assert caught == []
        folder = SeedFolder(tmp_path / ("x" * 300))
        assert folder.of(MATMUL) == folder.of("pkg.other") == []
    first, second = (str(warning.message) for warning in caught)
    assert first == second
    assert "are left out: File name too long" in first
