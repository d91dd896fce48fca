"""Pictures of the explorer in docs/images, from a real report with recorded timings.

    python -m benchmarks.screenshots [--folder docs/images]

Needs Chromium (`apt-get install chromium fonts-dejavu-core`) and no GPU. The report is of the int8
GEMM for an H200, compiled here (some two minutes on 2 cores with empty caches), beside the times in
results/h200_families.json.gz.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from asmtune.cli.app import run
from benchmarks.harness import RESULTS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parent.parent
KERNEL = ROOT / "benchmarks" / "corpus" / "families" / "matmul_int8.py"
SHAPE = "M=4096,N=4096,K=4096"
TIMINGS = RESULTS / "h200_families.json.gz"
SIZES = {"desktop": {"width": 1320, "height": 820}, "phone": {"width": 390, "height": 844}}
MOST_BYTES = 400_000


def report(path: Path) -> None:
    """Write the report as a page."""
    words = ["prune-report", str(KERNEL), "--shape", SHAPE, "--dtype", "i8", "--target", "H200"]
    words += ["--scorer", "roofline", "--timings", str(TIMINGS), "--format", "html"]
    if run([*words, "-o", str(path)]):
        raise SystemExit("no report, no pictures")


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


def table(page: Page) -> None:
    """Show the table with the third row in focus, where it is in sight."""
    if (page.viewport_size or {"width": 0})["width"] > 900:
        page.focus("#grid")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")


def code(page: Page) -> None:
    """Show the code of the first config, with a product's source line selected."""
    page.wait_for_selector(".pane-sass .line")
    page.locator(".pane-source .line.hot", has_text="tl.dot").first.click(
        position={"x": 120, "y": 8}
    )
    page.mouse.move(0, 0)


def compare(page: Page) -> None:
    """Show the first two configs beside each other, at their first difference."""
    page.wait_for_selector("#diff .pair")
    page.mouse.move(0, 0)


VIEWS = {
    "": ("#", table),
    "code-": ("#view=code&id=0.0", code),
    "compare-": ("#view=compare&picked=0.0,0.2", compare),
}
SHOWN = (
    ("", "light", "desktop"),
    ("", "light", "phone"),
    ("code-", "dark", "desktop"),
    ("code-", "light", "phone"),
    ("compare-", "light", "desktop"),
    ("compare-", "dark", "phone"),
)
"""View, theme and size of each picture that a page has."""


def shoot(browser: Browser, path: Path, folder: Path) -> None:
    """Capture the pictures, as `explorer-VIEW-THEME-SIZE.png`."""
    for name, theme, size in SHOWN:
        view, arrange = VIEWS[name]
        page = browser.new_context(color_scheme=theme, viewport=SIZES[size]).new_page()
        page.goto(path.as_uri() + view)
        page.wait_for_selector("html[data-ready]", state="attached")
        arrange(page)
        page.wait_for_timeout(400)
        target = folder / f"explorer-{name}{theme}-{size}.png"
        page.screenshot(path=target)
        page.context.close()
        if target.stat().st_size > MOST_BYTES:
            raise SystemExit(f"{target}: {target.stat().st_size:,} bytes, at most {MOST_BYTES:,}")


def main() -> None:
    """Make the report and its pictures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=ROOT / "docs" / "images")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        path = Path(folder) / "report.html"
        report(path)
        shoot(browser, path, options.folder)


if __name__ == "__main__":
    main()
