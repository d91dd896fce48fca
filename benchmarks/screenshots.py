"""Pictures of the explorer in docs/images, from a real report.

    python -m benchmarks.screenshots [--folder docs/images]

Needs Chromium and no GPU. The report is of the int8 GEMM for an H200, compiled here (some two
minutes on 2 cores with empty caches).
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asmtune.base.settings import Settings
from asmtune.core.hardware.shipped import load_target
from asmtune.core.kernel_module import load_kernel_module
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.keep import Keep
from asmtune.predict.score.scorers import make_scorer
from asmtune.report.page import report_html

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parent.parent
KERNEL = ROOT / "benchmarks" / "corpus" / "families" / "matmul_int8.py"
SHAPE = {"M": 4096, "N": 4096, "K": 4096}
SIZES = {"desktop": {"width": 1320, "height": 820}, "phone": {"width": 390, "height": 844}}
MOST_BYTES = 400_000


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


def page_text() -> str:
    """Make the report that `asmtune prune-report` makes on an H200, and render it as a page."""
    module, target = load_kernel_module(str(KERNEL)), load_target("H200")
    settings = Settings.from_environment()
    problem = module.problem(SHAPE, "i8", "meta")
    funnel = Funnel(target, make_scorer("roofline"), settings, Keep.default("roofline"))
    return report_html([funnel.prune(problem, module.space())])


def opened(browser: Browser, path: Path, **options: Any) -> Page:
    """Open a page in a window of its own, with the third row in focus where the table is in sight.

    It is returned once it shows its report.
    """
    page = browser.new_context(**options).new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]", state="attached")
    if options["viewport"]["width"] > 900:
        page.focus("#grid")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
    return page


def shoot(browser: Browser, path: Path, folder: Path) -> None:
    """Capture the page in both themes and sizes, as `explorer-THEME-SIZE.png`."""
    for theme in ("light", "dark"):
        for size, viewport in SIZES.items():
            page = opened(browser, path, color_scheme=theme, viewport=viewport)
            page.wait_for_timeout(400)
            target = folder / f"explorer-{theme}-{size}.png"
            page.screenshot(path=target)
            page.context.close()
            if target.stat().st_size > MOST_BYTES:
                raise SystemExit(
                    f"{target}: {target.stat().st_size:,} bytes, at most {MOST_BYTES:,}"
                )


def main() -> None:
    """Make the report and its pictures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=ROOT / "docs" / "images")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        path = Path(folder) / "report.html"
        path.write_text(page_text(), encoding="utf-8")
        shoot(browser, path, options.folder)


if __name__ == "__main__":
    main()
