"""The explorer's page in a browser: sorts, filters, searches, exports, restores its link."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from explorer_pages import Opener, needs_browser, repeated
from test_documents import report

from asmtune.core.config import Config
from asmtune.core.records.verdicts import PruneReport, Verdict
from asmtune.report.documents import triton_config
from asmtune.report.page import report_html

pytestmark = needs_browser

Reports = tuple[PruneReport, ...]


def by_rank(report: PruneReport) -> list[Verdict]:
    """The verdicts in the order in which the page shows them first."""
    return sorted(report.verdicts, key=lambda verdict: verdict.rank or 0)


def test_the_funnel(gemm: Reports, gemm_page: Path, opened: Opener) -> None:
    """Its counts are the report's own; a click on a loss narrows the table, another widens it."""
    report, here = gemm[0], opened(gemm_page)
    cells = {
        row.locator("th").inner_text(): row.locator("td").last.inner_text()
        for row in here.page.locator("#funnel-body tr").all()
    }
    lost = report.dropped()["score", "rank"]
    assert cells["space all configs"] == str(len(report.verdicts)) == "8"
    assert cells["score rank"] == f"\N{MINUS SIGN}{lost}"
    assert cells["kept by roofline"] == str(len(report.kept))
    assert here.page.title() == "tiled_matmul on H200: asmtune prune report"
    here.page.click("#funnel-body button:has-text('rank')")
    assert here.shown() == f"{lost} of 8 configs"
    assert set(here.column("verdict")) == {"score: rank"}
    here.page.click("#funnel-body button:has-text('rank')")
    assert here.shown() == "8 of 8 configs"


def test_sorting(gemm: Reports, gemm_page: Path, opened: Opener) -> None:
    """A heading sorts up, once more down, and says so to screen readers."""
    here = opened(gemm_page)
    wanted = sorted(int(v.features["regs_per_thread"]) for v in gemm[0].verdicts if v.features)
    heading = here.page.locator("[role=columnheader]", has_text=re.compile("^regs"))
    for order, values in (("ascending", wanted), ("descending", wanted[::-1])):
        heading.locator("button").click()
        assert [int(text) for text in here.column("regs")] == values
        assert heading.get_attribute("aria-sort") == order


@pytest.mark.parametrize(
    ("query", "test"),
    [
        ("BLOCK_K=32", lambda v: v.config.kwargs["BLOCK_K"] == 32),
        (
            "regs>=64 num_stages=2",
            lambda v: v.features["regs_per_thread"] >= 64 and v.config.num_stages == 2,
        ),
        ("score:", lambda v: not v.kept),
        ("-score: L2", lambda v: v.kept and v.bottleneck == "L2"),
        ("verdict=kept", lambda v: v.kept),
        ("-BLOCK_M=64", lambda v: v.config.kwargs["BLOCK_M"] != 64),
        ("occupancy<0.2", lambda v: v.features["occupancy"] < 0.2),
    ],
)
def test_search(
    query: str, test: Callable[..., bool], gemm: Reports, gemm_page: Path, opened: Opener
) -> None:
    """Words and comparisons leave the configs that they say, and no others."""
    here = opened(gemm_page)
    here.search(query)
    wanted = {str(v.rank) for v in gemm[0].verdicts if test(v)}
    assert set(here.column("rank")) == wanted
    assert here.shown() == f"{len(wanted)} of 8 configs"


def test_the_link_restores_the_view(gemm_page: Path, opened: Opener) -> None:
    """The address that a view has gives the same view in another window."""
    here = opened(gemm_page)
    here.search("BLOCK_M=128")
    here.page.select_option("[data-facet=num_stages]", "3")
    here.page.click("[role=columnheader] button:has-text('regs')")
    there = opened(gemm_page, "#" + here.page.evaluate("location.hash").lstrip("#"))
    assert there.rows() == here.rows()
    assert there.page.input_value("#search") == "BLOCK_M=128"
    assert there.shown() == here.shown() == "2 of 8 configs"


def test_keys(gemm_page: Path, opened: Opener) -> None:
    """The table is worked by keys alone."""
    here = opened(gemm_page)
    page = here.page
    page.focus("#grid")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    active = page.get_attribute("#grid", "aria-activedescendant")
    assert page.get_attribute(f"#{active}", "aria-rowindex") == "4"
    page.keyboard.press("End")
    assert page.get_attribute("#grid", "aria-activedescendant") == "row-7"
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"


def test_many_rows(gemm: Reports, tmp_path: Path, opened: Opener) -> None:
    """Of 5,000 rows only those in sight are in the document, and the last one is one key away."""
    path = tmp_path / "many.html"
    path.write_text(report_html([repeated(gemm[0], 5000)]), encoding="utf-8")
    here = opened(path)
    assert here.shown() == "5,000 of 5,000 configs"
    assert here.page.get_attribute("#grid", "aria-rowcount") == "5001"
    assert here.page.locator("#grid-body [role=row]").count() < 80
    here.page.focus("#grid")
    here.page.keyboard.press("End")
    here.page.wait_for_selector("#row-4999")
    assert here.page.locator("#grid-body [role=row]").count() < 80


def test_failures_only(tmp_path: Path, opened: Opener) -> None:
    """A report in which nothing runs has its reasons, and the compiler's message."""
    path = tmp_path / "failures.html"
    path.write_text(report_html([replace(report(), verdicts=report().verdicts[2:])]))
    here = opened(path)
    assert here.shown() == "2 of 2 configs"
    assert set(here.column("verdict")) == {"compile: kernel", "rules: threads"}
    assert here.page.inner_text("#config-failure") == "first\nsecond"
    here.page.click("#row-1")
    assert "2048 threads" in here.page.inner_text("#config-reasons")
    assert here.page.locator("#config-terms tr").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility(scheme: str, targets_page: Path, opened: Opener) -> None:
    """Checked by axe, nothing is wrong, light or dark."""
    here = opened(targets_page, color_scheme=scheme)
    here.page.wait_for_timeout(300)
    assert here.violations() == []


def test_phone(targets_page: Path, opened: Opener) -> None:
    """At a phone's width nothing sticks out of the page, and the time is the first column."""
    here = opened(targets_page, viewport={"width": 390, "height": 844})
    here.page.wait_for_timeout(200)
    assert here.page.evaluate("document.documentElement.scrollWidth") <= 390
    titles = here.page.locator("#grid-head [role=columnheader] button").all_inner_texts()
    assert titles[0] == "pred us"
    assert "verdict" not in titles


def test_the_config_in_focus(gemm: Reports, gemm_page: Path, opened: Opener) -> None:
    """The winner is described first, its time as a sum of terms; a click describes another."""
    winner, second = by_rank(gemm[0])[:2]
    here = opened(gemm_page, permissions=["clipboard-read", "clipboard-write"])
    assert here.page.inner_text("#config-title") == str(winner.config)
    rows = here.page.locator("#config-terms tr").all()
    parts = [float(row.locator("td").nth(1).inner_text().split()[0]) for row in rows]
    assert rows[0].locator("th").inner_text() == winner.bottleneck
    assert parts == sorted(parts, reverse=True)
    assert sum(parts) == pytest.approx(winner.predicted_us, abs=0.1)
    here.page.click("#copy")
    here.until(lambda: here.page.inner_text("#copy") == "Copied")
    assert here.page.evaluate("navigator.clipboard.readText()") == triton_config(winner.config)
    here.page.click("#row-1 .fate")
    assert here.page.inner_text("#config-title") == str(second.config)


def test_names_that_need_escaping(tmp_path: Path, opened: Opener) -> None:
    """Names that look like markup are shown as they are, and run nothing."""
    tags = ("</script><b>", "<img src=x onerror=alert(1)>", '"q"', "@report@")
    made = replace(report(), kernel="<b>twice</b></title>")
    verdicts = zip(made.verdicts, tags, strict=True)
    changed = tuple(replace(one, config=Config({"TAG": tag})) for one, tag in verdicts)
    path = tmp_path / "hostile.html"
    path.write_text(report_html([replace(made, verdicts=changed)]), encoding="utf-8")
    here = opened(path)
    assert here.page.title() == "<b>twice</b></title> on H200: asmtune prune report"
    assert here.page.inner_text("h1") == "<b>twice</b></title>"
    assert set(here.column("TAG")) == set(tags)
    assert here.page.locator("main img, main b").count() == 0
    assert here.violations() == []
