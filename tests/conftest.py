"""Fixtures and hooks of all tests: caches (never the user's), the order of tests, skip reasons."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from asmtune.base.settings import Settings
from asmtune.base.trust import UntrustedError, trusted_folder
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import load_target
from tests.command_lines import Commands
from tests.interpreter import Interpreter

if TYPE_CHECKING:
    from tests.launch_kernels import Launch

# A deadline would test how busy the machine is. A commit passes or fails the same way each time;
# `--hypothesis-profile=explore` draws examples that nobody has seen.
hypothesis.settings.register_profile("explore", deadline=None)
hypothesis.settings.register_profile("same", deadline=None, derandomize=True)
hypothesis.settings.load_profile("same")


ROOT = Path(__file__).parent.parent
KEPT = Path(os.environ.get("ASMTUNE_TEST_CACHE") or ROOT / ".cache" / "tests")
"""Compiled artifacts that are kept between runs: a folder for each version of `COMPILING`."""

COMPILING = ("asmtune/compile", "asmtune/core/records/artifacts.py", "asmtune/base/fingerprint.py")
"""Code that decides what an artifact holds. Triton's version is part of every artifact's key."""

MOST_KEPT = 3
"""Versions of that code whose artifacts are kept: those of a few branches."""

MOST_TRITON_BYTES = 1 << 30
"""Triton never trims its cache, so that it is deleted at this size. A run leaves about 50 MB."""


def pytest_configure(config: pytest.Config) -> None:
    """Trim the kept folders before the run, in the process that starts the others."""
    if hasattr(config, "workerinput"):
        return
    folders = sorted(KEPT.glob("*/"), key=lambda folder: -folder.stat().st_mtime)
    for folder in folders[MOST_KEPT:]:
        shutil.rmtree(folder, ignore_errors=True)
    for folder in folders[:MOST_KEPT]:
        files = [path for path in (folder / "triton").rglob("*") if path.is_file()]
        if sum(path.stat().st_size for path in files) > MOST_TRITON_BYTES:
            shutil.rmtree(folder / "triton", ignore_errors=True)


NEEDS = frozenset(("browser", "postgres", "postgresql"))
"""Fixtures, and values of parameters, that need Chromium or a PostgreSQL server: slow tests."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a browser or a server as slow; put the longest of the slow tests first.

    Processes that get long tests at last do not end together.
    """
    for item in items:
        callspec = getattr(item, "callspec", None)
        values = [] if callspec is None else callspec.params.values()
        texts = {value for value in values if isinstance(value, str)}
        if NEEDS & {*getattr(item, "fixturenames", ()), *texts}:
            item.add_marker("slow")

    def seconds(item: pytest.Item) -> float:
        mark = item.get_closest_marker("slow")
        return 0.0 if mark is None else mark.kwargs.get("seconds", 5.0)

    items.sort(key=seconds, reverse=True)


def pytest_collection_finish() -> None:
    """Leave collected tests out of garbage collections, each of which would look at all of them."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print each reason for skipping once, with the number of tests that it skipped."""
    reasons: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        if isinstance(report.longrepr, tuple):
            reasons[report.longrepr[2].removeprefix("Skipped: ")] += 1
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count} skipped: {reason}")


def kept_folder() -> Path:
    """Return the kept folder of this version of the code that compiles; make it where missing."""
    version = hashlib.sha256()
    for part in COMPILING:
        path = ROOT / part
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            version.update(file.read_bytes())
    folder = KEPT / version.hexdigest()[:16]
    (folder / "artifacts").mkdir(mode=0o700, parents=True, exist_ok=True)
    os.utime(folder)
    return folder


@pytest.fixture
def commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Commands:
    """Run commands in a folder of kernel files; the session's artifacts are shared."""
    return Commands(tmp_path, capsys)


@pytest.fixture(scope="session", autouse=True)
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep a folder of artifacts for the session, so that nothing is compiled twice.

    The processes of one session (pytest-xdist's workers) share it.
    """
    shared, kept = tmp_path_factory.getbasetemp(), kept_folder()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "cache"
    folder.mkdir(mode=0o700, exist_ok=True)
    with contextlib.suppress(FileExistsError, UntrustedError):  # a checkout that a group may write
        trusted_folder(kept / "artifacts")
        (folder / "artifacts").symlink_to(kept / "artifacts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASMTUNE_CACHE_DIR", str(folder))
        patch.delenv("ASMTUNE_STORE_URL", raising=False)
        patch.setenv("TRITON_CACHE_DIR", str(kept / "triton"))
        patch.setenv("ASMTUNE_JOBS", "1")
        patch.delenv("COLUMNS", raising=False)  # pytest-xdist sets its terminal's width
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
    """Compile a config and weigh its launch, for any target by name."""
    from tests.launch_kernels import launches

    return launches(settings)


@pytest.fixture(scope="session")
def interpreter(session_cache: Path) -> Iterator[Interpreter]:
    """A process that runs functions under Triton's interpreter, one for all tests."""
    process = Interpreter(session_cache)
    yield process
    process.close()
