"""Reports made by real compiles, and pages of them in a browser."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.core.kernel_module import load_kernel_module
from asmtune.core.records.verdicts import PruneReport
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.keep import Keep
from asmtune.predict.score.scorers import make_scorer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")

AXES = {
    "BLOCK_M": (64, 128), "BLOCK_N": (64,), "BLOCK_K": (32, 64), "GROUP_M": (8,),
    "num_warps": (4,), "num_stages": (2, 3),
}  # fmt: skip


def matmul(settings: Settings, targets: tuple[str, ...]) -> tuple[PruneReport, ...]:
    """Reports of a small space of the fp16 GEMM: two are kept, and the default."""
    module = load_kernel_module("tiled_matmul")
    problem = module.problem({"M": 1024, "N": 1024, "K": 512}, "fp16", "meta")
    space, scorer = module.space().replace(**AXES), make_scorer("roofline")
    return tuple(
        Funnel(load_target(name), scorer, settings, Keep.of("2")).prune(problem, space)
        for name in targets
    )


def repeated(report: PruneReport, count: int) -> PruneReport:
    """A report of `count` rows: those of a real one again and again, told apart by an axis."""
    rows = [
        replace(
            (verdict := report.verdicts[number % len(report.verdicts)]),
            config=Config.from_dict({**verdict.config.to_dict(), "COPY": number}),
            rank=None if verdict.rank is None else number + 1,
        )
        for number in range(count)
    ]
    return replace(report, verdicts=tuple(rows))


@dataclass
class Opened:
    """A page in the browser, and what it complained of."""

    page: Page
    complaints: list[str] = field(default_factory=list)

    def rows(self) -> list[list[str]]:
        """Cells of the rows in sight, in their order."""
        return self.page.eval_on_selector_all(
            "#grid-body [role=row]",
            """rows => rows.map(row => [...row.querySelectorAll("[role=gridcell]")]
                 .map(cell => cell.textContent))""",
        )

    def column(self, title: str) -> list[str]:
        """The cells in sight of a column by its heading."""
        titles = self.page.locator("#grid-head [role=columnheader] button").all_inner_texts()
        return [row[titles.index(title)] for row in self.rows()]

    def shown(self) -> str:
        """Read how many configs the page says it shows."""
        return self.page.inner_text("#shown")

    def search(self, text: str) -> None:
        """Search, and wait until that is done."""
        self.page.fill("#search", text)
        self.until(lambda: ("query=" in self.page.evaluate("location.hash")) == (text != ""))

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds; the page's policy forbids Playwright's own way."""
        for _ in range(200):
            if holds():
                return
            self.page.wait_for_timeout(25)
        raise AssertionError("it did not come to hold within 5 s")

    def violations(self) -> list[Any]:
        """List the accessibility violations that axe reports."""
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(self.page).response["violations"]
        return [(v["id"], [n["html"] for n in v["nodes"]][:3]) for v in found]


Opener = Callable[..., Opened]


@contextmanager
def opener(browser: Browser) -> Iterator[Opener]:
    """Open pages; whatever they print or throw is a failure when the test ends."""
    contexts, opened_pages = [], []

    def open_page(path: Path, view: str = "", **options: Any) -> Opened:
        options = {"viewport": {"width": 1440, "height": 900}, **options}
        context = browser.new_context(accept_downloads=True, **options)
        contexts.append(context)
        opened = Opened(context.new_page())
        opened_pages.append(opened)
        opened.page.on("console", lambda message: opened.complaints.append(message.text))
        opened.page.on("pageerror", lambda error: opened.complaints.append(str(error)))
        opened.page.on(
            "request",
            lambda request: opened.complaints.extend(
                [] if request.url.startswith(("file:", "data:", "blob:")) else [request.url]
            ),
        )
        opened.page.goto(path.as_uri() + view)
        opened.page.wait_for_selector("html[data-ready]", state="attached")
        return opened

    try:
        yield open_page
    finally:
        for context in contexts:
            context.close()
    assert [line for opened in opened_pages for line in opened.complaints] == []
