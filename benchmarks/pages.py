"""Pages of the explorer made by real compiles, and the browser that opens them.

Needs Chromium (`apt-get install chromium fonts-dejavu-core`) and no GPU.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asmtune.base.settings import Settings
from asmtune.core.hardware.shipped import load_target
from asmtune.core.kernel_module import load_kernel_module
from asmtune.core.progress import ProgressListener
from asmtune.core.records.verdicts import PruneReport
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.keep import Keep
from asmtune.predict.score.scorers import make_scorer
from asmtune.report.explorer.code import CarriedCode, CodeMaker, carried_code

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


def report_of(kernel: str, shape: Mapping[str, Any], dtype: str) -> tuple[PruneReport, CarriedCode]:
    """Report what `asmtune prune-report` finds for a kernel on an H200; add its page's code."""
    module, settings, target = (
        load_kernel_module(kernel),
        Settings.from_environment(),
        load_target("H200"),
    )
    problem = module.problem(shape, dtype, "meta")
    funnel = Funnel(target, make_scorer("roofline"), settings, Keep.default("roofline"))
    report = funnel.prune(problem, module.space())
    maker = CodeMaker([target], settings, ProgressListener())
    return report, carried_code([report], problem, maker)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start Chromium without a window; end the program where it is not installed."""
    from playwright.sync_api import sync_playwright

    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        raise SystemExit("no Chromium: apt-get install chromium fonts-dejavu-core")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield browser
        browser.close()


def opened(browser: Browser, path: Path, view: str = "", **options: Any) -> Page:
    """Open a page in a window of its own; return it once it shows its report."""
    page = browser.new_context(**options).new_page()
    page.goto(path.as_uri() + view)
    page.wait_for_selector("html[data-ready]", state="attached")
    return page
