"""What all tests share: caches of the session's own, never the user's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from asmtune.base.settings import Settings
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import load_target

if TYPE_CHECKING:
    from tests.launch_kernels import Launch

# A deadline would test how busy the machine is. A commit passes or fails the same way each time;
# `--hypothesis-profile=explore` draws examples that nobody has seen.
hypothesis.settings.register_profile("explore", deadline=None)
hypothesis.settings.register_profile("same", deadline=None, derandomize=True)
hypothesis.settings.load_profile("same")


@pytest.fixture(scope="session", autouse=True)
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep a folder of artifacts for the session, so that nothing is compiled twice.

    The processes of one session (pytest-xdist's workers) share it.
    """
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "cache"
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASMTUNE_CACHE_DIR", str(folder))
        patch.delenv("ASMTUNE_STORE_URL", raising=False)
        patch.setenv("TRITON_CACHE_DIR", str(shared / "triton"))
        patch.setenv("ASMTUNE_JOBS", "1")
        yield folder


@pytest.fixture(scope="session")
def settings(session_cache: Path) -> Settings:
    """Settings of the session: its folder, and one worker, which is this process."""
    return Settings(cache_dir=session_cache, jobs=1)


@pytest.fixture
def empty_settings(tmp_path: Path) -> Settings:
    """Settings with a folder where nothing lies yet."""
    return Settings(cache_dir=tmp_path / "cache", jobs=1)


@pytest.fixture(scope="session")
def target() -> Target:
    """An H200."""
    return load_target("H200")


@pytest.fixture(scope="session")
def launch(settings: Settings) -> Launch:
    """Compiles a config and weighs its launch, for any target by name."""
    from tests.launch_kernels import launches

    return launches(settings)
