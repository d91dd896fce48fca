"""Every test here needs a GPU; without one it is skipped, and says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--share", help="I/N: of every N tests the one at place I, from 0")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    if share := config.getoption("--share", None):
        place, shares = map(int, str(share).split("/"))
        # Neighbours are alike, and take alike long.
        items[:] = items[place::shares]
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if not torch.cuda.is_available():
                item.add_marker(pytest.mark.skip(reason="no CUDA GPU on this machine"))


@pytest.fixture(autouse=True)
def cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("ASMTUNE_CACHE_DIR", str(tmp_path))
    yield tmp_path
    # What PyTorch keeps of a test's memory is missing in the other workers: 26 GiB after attention.
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
