"""Pictures of the explorer in docs/images, from a real report with recorded timings.

    python -m benchmarks.screenshots [--folder docs/images]

Needs Chromium and no GPU. The report is of the int8 GEMM for an H200, compiled here (some two
minutes on 2 cores with empty caches), beside the times in results/h200_families.json.gz.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asmtune.report.explorer.page import report_html
from asmtune.report.explorer.timings import LaunchKey, read_timings, with_timings
from benchmarks.harness import RESULTS
from benchmarks.pages import chromium, opened, report_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parent.parent
KERNEL = ROOT / "benchmarks" / "corpus" / "families" / "matmul_int8.py"
SHAPE = {"M": 4096, "N": 4096, "K": 4096}
TIMINGS = RESULTS / "h200_families.json.gz"
SIZES = {"desktop": {"width": 1320, "height": 820}, "phone": {"width": 390, "height": 844}}
MOST_BYTES = 400_000


def page_text() -> str:
    """Render the report as a page."""
    report, code = report_of(str(KERNEL), SHAPE, "i8")
    timings = read_timings(str(TIMINGS), RESULTS)
    timings.check([LaunchKey(report.kernel, report.shape, report.dtypes, report.target)])
    return report_html(with_timings([report], timings), code)


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


def shoot(browser: Browser, path: Path, folder: Path) -> None:
    """Capture every view in both themes and sizes, as `explorer-VIEW-THEME-SIZE.png`."""
    for name, (view, arrange) in VIEWS.items():
        for theme in ("light", "dark"):
            for size, viewport in SIZES.items():
                options: dict[str, Any] = {"color_scheme": theme, "viewport": viewport}
                page = opened(browser, path, view, **options)
                arrange(page)
                page.wait_for_timeout(400)
                target = folder / f"explorer-{name}{theme}-{size}.png"
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
