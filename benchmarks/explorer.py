"""Size of a page of more than 1,000 configs, and seconds until it shows.

    python -m benchmarks.explorer [--repeats N] [--output FILE]

Needs Chromium and no GPU. The page is of the fp16 GEMM's whole space on two shapes for an H200,
which share their compiles: 200 s on 2 cores with empty caches, seconds with full ones. Seconds
are wall-clock medians of fresh windows: from the address to the table, and from a click on a
config to its PTX. Frames are those of a table of 5,000 rows while it scrolls from end to end.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asmtune.core.config import Config
from asmtune.core.records.verdicts import PruneReport
from asmtune.report.explorer.page import report_html
from benchmarks.pages import chromium, joined, opened, report_of
from benchmarks.provenance import RESULTS, write

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SIZES = (4096, 8192)
ROWS = 5000
FRAMES = """async () => {
  const grid = document.getElementById("grid"), frames = [];
  let last = await new Promise(requestAnimationFrame);
  const step = (grid.scrollHeight - grid.clientHeight) / 120;
  for (let at = 0; at < 120; at += 1) {
    grid.scrollTop += step;
    const now = await new Promise(requestAnimationFrame);
    frames.push(now - last);
    last = now;
  }
  return frames;
}"""


def measured(browser: Browser, path: Path, repeats: int) -> dict[str, Any]:
    """Time, each in fresh windows, how soon the table and a config's code show."""
    table, code = [], []
    for _ in range(repeats):
        start = time.perf_counter()
        page = opened(browser, path)
        table.append(time.perf_counter() - start)
        start = time.perf_counter()
        page.click("#row-1 .fate")
        page.wait_for_selector(".pane-ptx .line")
        code.append(time.perf_counter() - start)
        page.context.close()
    return {
        "open_s": round(statistics.median(table), 3),
        "open_worst_s": round(max(table), 3),
        "code_s": round(statistics.median(code), 3),
        "repeats": repeats,
    }


def repeated(report: PruneReport) -> PruneReport:
    """Make a report of `ROWS` configs: a real one's repeated, each with its number as an axis."""
    real = report.verdicts
    verdicts = tuple(
        replace(
            real[row % len(real)],
            config=Config.from_dict({**real[row % len(real)].config.to_dict(), "COPY": row}),
        )
        for row in range(ROWS)
    )
    return replace(report, verdicts=verdicts)


def scrolled(browser: Browser, path: Path) -> dict[str, Any]:
    """Measure milliseconds between frames while the table scrolls from end to end in 120 steps."""
    page = opened(browser, path)
    frames = sorted(page.evaluate(FRAMES))
    page.context.close()
    return {
        "rows": ROWS,
        "frame_median_ms": round(statistics.median(frames), 1),
        "frame_p95_ms": round(frames[int(0.95 * len(frames))], 1),
    }


def cpu() -> str:
    """Read the processor's name."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def main() -> None:
    """Make the page, open it and write the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--output", type=Path, default=RESULTS / "explorer.json")
    options = parser.parse_args()
    shapes = [{"M": size, "N": size, "K": size} for size in SIZES]
    pages = [report_of("tiled_matmul", shape, "fp16") for shape in shapes]
    reports, code = [report for report, _ in pages], joined([code for _, code in pages])
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        path, many = Path(folder) / "report.html", Path(folder) / "many.html"
        path.write_text(report_html(reports, code), encoding="utf-8")
        many.write_text(report_html([repeated(reports[0])]), encoding="utf-8")
        result = {
            "cpu": cpu(),
            "chromium": browser.version,
            "kernel": "tiled_matmul fp16, H200",
            "shapes": shapes,
            "configs": sum(len(report.verdicts) for report in reports),
            "with_ptx": len(code.packed),
            "with_sass": sum(len(report.kept) for report in reports),
            "page_mb": round(path.stat().st_size / 1e6, 3),
            "code_mb": round(sum(map(len, code.packed)) / 1e6, 3),
            **measured(browser, path, options.repeats),
            "scrolling": scrolled(browser, many),
        }
    write(options.output, result)
    print(result)


if __name__ == "__main__":
    main()
