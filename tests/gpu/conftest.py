"""Every test here needs a GPU; without one it is skipped, and says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import load_target, match_device


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if not torch.cuda.is_available():
                item.add_marker(pytest.mark.skip(reason="no CUDA GPU on this machine"))


@pytest.fixture(scope="session")
def here() -> Target:
    """This GPU."""
    return match_device(torch.cuda.get_device_name()) or load_target("H200")


@pytest.fixture(autouse=True)
def cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("ASMTUNE_CACHE_DIR", str(tmp_path))
    yield tmp_path
    # What PyTorch keeps of a test's memory is missing in the other workers: 26 GiB after attention.
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
