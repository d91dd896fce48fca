"""Pages of real reports, made once a session, and the browser that opens them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from explorer_pages import CHROMIUM, Opener, matmul, opener

from asmtune.base.settings import Settings
from asmtune.core.records.verdicts import PruneReport
from asmtune.report.page import report_html

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def gemm(settings: Settings) -> tuple[PruneReport, ...]:
    """Eight configs of the GEMM for two targets."""
    return matmul(settings, ("H200", "A100"))


@pytest.fixture(scope="session")
def gemm_page(gemm: tuple[PruneReport, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of one target."""
    path = tmp_path_factory.mktemp("pages") / "gemm.html"
    path.write_text(report_html(gemm[:1]), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def targets_page(gemm: tuple[PruneReport, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of both targets."""
    path = tmp_path_factory.mktemp("pages") / "targets.html"
    path.write_text(report_html(gemm), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium without a window; closed with the module, since its event loop is the thread's."""
    needs = "no browser's driver: pip install '.[browser]'"
    sync_playwright = pytest.importorskip("playwright.sync_api", reason=needs).sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opener]:
    """Open pages, and hold them to print, throw and load nothing."""
    with opener(browser) as open_page:
        yield open_page
