"""The explorer's table in a browser: sorts, filters, searches, exports, restores its link."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
from explorer_pages import Made, Opener, failures_only, needs_browser, repeated

from asmtune.base.settings import Settings
from asmtune.core.records.tuned import SampleStatistics
from asmtune.core.records.verdicts import PruneReport, Verdict
from asmtune.report.documents import triton_config
from asmtune.report.explain.record import TERMS
from asmtune.report.explorer.page import report_html
from asmtune.report.explorer.timings import KernelTimings, Timings, with_timings

pytestmark = needs_browser


def by_rank(report: PruneReport) -> list[Verdict]:
    """The verdicts in the order in which the page shows them first."""
    return sorted(report.verdicts, key=lambda verdict: verdict.rank or 0)


def test_the_funnel(gemm: Made, gemm_page: Path, opened: Opener) -> None:
    """Candidates, losses and what is kept stand with the report's own counts."""
    report = gemm.reports[0]
    page = opened(gemm_page).page
    rows = page.locator("#funnel-body tr")
    cells = [
        (row.locator("th").inner_text(), row.locator("td").last.inner_text()) for row in rows.all()
    ]
    counts = {name: count.replace("\N{MINUS SIGN}", "-") for name, count in cells}
    assert counts["space all configs"] == str(len(report.verdicts)) == "8"
    assert counts["left out ranked too low"] == f"-{report.dropped()['score', 'rank']}"
    assert counts["kept by roofline"] == str(len(report.kept))
    assert page.title() == "tiled_matmul on H200: asmtune prune report"


def test_a_step_of_the_funnel_narrows_the_table(
    gemm: Made, gemm_page: Path, opened: Opener
) -> None:
    """A click on a loss shows the configs that fell there, another click shows all again."""
    here = opened(gemm_page)
    lost = gemm.reports[0].dropped()["score", "rank"]
    here.page.click("#funnel-body button:has-text('too low')")
    assert here.shown() == f"{lost} of 8 configs"
    assert set(here.column("verdict")) == {"left out: ranked too low"}
    here.page.click("#funnel-body button:has-text('too low')")
    assert here.shown() == "8 of 8 configs"


def test_sorting(gemm: Made, gemm_page: Path, opened: Opener) -> None:
    """A heading sorts up, once more down, and says so to screen readers."""
    here = opened(gemm_page)
    wanted = sorted(
        int(v.features["regs_per_thread"]) for v in gemm.reports[0].verdicts if v.features
    )
    heading = here.page.locator("[role=columnheader]", has_text="regs")
    heading.locator("button").click()
    assert [int(text) for text in here.column("regs")] == wanted
    assert heading.get_attribute("aria-sort") == "ascending"
    heading.locator("button").click()
    assert [int(text) for text in here.column("regs")] == wanted[::-1]
    assert heading.get_attribute("aria-sort") == "descending"


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
    query: str, test: Callable[..., bool], gemm: Made, gemm_page: Path, opened: Opener
) -> None:
    """Words and comparisons leave the configs that they say, and no others."""
    here = opened(gemm_page)
    here.search(query)
    wanted = {str(v.rank) for v in gemm.reports[0].verdicts if test(v)}
    assert set(here.column("rank")) == wanted
    assert here.shown() == f"{len(wanted)} of 8 configs"


def test_a_search_that_means_nothing(gemm_page: Path, opened: Opener) -> None:
    """A column that is not there is named, and the rows stay as they were."""
    here = opened(gemm_page)
    here.page.fill("#search", "BLOCK_Q=3")
    here.page.wait_for_selector("#search-error:has-text('no column \"BLOCK_Q\"')")
    assert len(here.rows()) == 8
    again = opened(gemm_page, here.page.evaluate("location.hash"))
    assert len(again.rows()) == 8
    here.page.fill("#search", "regs<many")
    here.page.wait_for_selector("#search-error:has-text('\"many\" is no number')")


def test_filters(gemm: Made, gemm_page: Path, opened: Opener) -> None:
    """A list of an axis narrows the table, and Clear widens it."""
    here = opened(gemm_page)
    here.page.select_option("[data-facet=BLOCK_M]", "128")
    assert set(here.column("BLOCK_M")) == {"128"}
    here.page.select_option("[data-facet=fate]", "dropped")
    wanted = [
        v for v in gemm.reports[0].verdicts if not v.kept and v.config.kwargs["BLOCK_M"] == 128
    ]
    assert here.shown() == f"{len(wanted)} of 8 configs"
    here.page.click("#clear")
    assert here.shown() == "8 of 8 configs"


def test_columns(gemm: Made, gemm_page: Path, opened: Opener) -> None:
    """Any feature can be a column, with the report's own values."""
    here = opened(gemm_page)
    here.page.click("summary:has-text('Columns')")
    here.page.check("[data-column=code_bytes]")
    verdicts = by_rank(gemm.reports[0])
    wanted = [f"{v.features['code_bytes']:,.0f}" for v in verdicts if v.features]
    assert here.column("code_bytes") == wanted
    here.page.uncheck("[data-column=bottleneck]")
    assert "limit" not in here.page.locator("#grid-head").inner_text()


def test_the_prediction_is_a_table_that_sums(gemm: Made, gemm_page: Path, opened: Opener) -> None:
    """A config's code stands under the parts of its predicted time, largest first."""
    verdict = by_rank(gemm.reports[0])[0]
    here = opened(gemm_page, "#view=code&id=0.0")
    rows = here.page.locator("#code-parts tr").all()
    names, words, figures = [row.locator("th, td").all_inner_texts()[1:] for row in rows[:3]]
    total, *parts = map(float, figures)
    assert names[:2] == ["all", verdict.bottleneck]
    assert words[:2] == ["the sum", TERMS[verdict.bottleneck or ""]]
    assert total == verdict.predicted_us
    assert sum(parts) == pytest.approx(total, abs=1e-6)
    assert parts == sorted(parts, reverse=True)


def test_export(gemm: Made, gemm_page: Path, opened: Opener) -> None:
    """The shown rows and columns are saved as CSV, in the table's order."""
    here = opened(gemm_page, "#query=BLOCK_K%3D64&sort=-regs_per_thread")
    with here.page.expect_download() as download:
        here.page.click("#export")
    assert download.value.suggested_filename == "tiled_matmul-H200.csv"
    rows = list(csv.DictReader(Path(download.value.path()).read_text().splitlines()))
    verdicts = [v for v in gemm.reports[0].verdicts if v.config.kwargs["BLOCK_K"] == 64]
    assert {int(row["rank"]) for row in rows} == {v.rank for v in verdicts}
    registers = [int(row["regs_per_thread"]) for row in rows]
    assert registers == sorted(
        (int(v.features["regs_per_thread"]) for v in verdicts if v.features), reverse=True
    )
    times = {v.rank: v.predicted_us for v in verdicts}
    assert all(float(row["predicted_us"]) == times[int(row["rank"])] for row in rows)


def test_the_link_restores_the_view(gemm_page: Path, opened: Opener) -> None:
    """The address that a view has gives the same view in another window."""
    here = opened(gemm_page)
    here.search("BLOCK_M=128")
    here.page.select_option("[data-facet=num_stages]", "3")
    here.page.click("[role=columnheader] button:has-text('regs')")
    here.page.select_option("#chart-x", "occupancy")
    there = opened(gemm_page, "#" + here.page.evaluate("location.hash").lstrip("#"))
    assert there.rows() == here.rows()
    assert there.page.input_value("#search") == "BLOCK_M=128"
    assert there.page.input_value("#chart-x") == "occupancy"
    assert there.shown() == here.shown() == "2 of 8 configs"


@pytest.mark.parametrize(
    "link", ["#columns=constructor", "#sort=constructor", "#query=constructor%3D1"]
)
def test_a_link_with_a_name_that_is_no_column(link: str, gemm_page: Path, opened: Opener) -> None:
    """A name that every object of JavaScript knows is no column either: the table is there."""
    here = opened(gemm_page, link)
    assert here.page.is_hidden("#fatal")
    assert len(here.rows()) == 8
    errors = {"#query=constructor%3D1": 'no column "constructor"'}
    assert here.page.inner_text("#search-error") == errors.get(link, "")


def test_keys(gemm_page: Path, opened: Opener) -> None:
    """The table is worked by keys alone: move, choose, open, and back where one was."""
    here = opened(gemm_page)
    page = here.page
    page.focus("#grid")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    active = page.get_attribute("#grid", "aria-activedescendant")
    assert page.get_attribute(f"#{active}", "aria-rowindex") == "4"
    page.keyboard.press("Space")
    assert page.is_checked(f"#{active} input")
    page.keyboard.press("End")
    assert page.get_attribute("#grid", "aria-activedescendant") == "row-7"
    page.keyboard.press("Enter")
    page.wait_for_selector("#code-view:not([hidden])")
    assert page.evaluate("document.activeElement.id") == "code-title"
    page.keyboard.press("Escape")
    page.wait_for_selector("#table-view:not([hidden])")
    assert page.evaluate("document.activeElement.id") == "grid"
    assert page.get_attribute("#grid", "aria-activedescendant") == "row-7"
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"


def test_a_point_of_the_chart_opens_its_config(gemm_page: Path, opened: Opener) -> None:
    """A point tells its config under the pointer, and opens the code at a click."""
    here = opened(gemm_page, "#x=predicted_us&log=0")
    box = here.page.locator("#chart .u-over").bounding_box()
    assert box is not None
    for step in range(100):  # predicted against predicted: all points are on the diagonal
        place = (box["width"] * step / 100, box["height"] * (1 - step / 100))
        here.page.mouse.move(box["x"] + place[0], box["y"] + place[1])
        if here.page.is_visible("#chart-tip"):
            break
    config = here.page.inner_text("#chart-tip div:first-child")
    here.page.mouse.click(box["x"] + place[0], box["y"] + place[1])
    here.page.wait_for_selector("#code-view:not([hidden])")
    assert here.page.inner_text("#code-title") == config != ""


def test_many_rows(gemm: Made, tmp_path: Path, opened: Opener) -> None:
    """Of 5,000 rows only those in sight are in the document, and the last one is one key away."""
    path = tmp_path / "many.html"
    path.write_text(report_html([repeated(gemm.reports[0], 5000)]), encoding="utf-8")
    here = opened(path)
    page = here.page
    assert here.shown() == "5,000 of 5,000 configs"
    assert page.get_attribute("#grid", "aria-rowcount") == "5001"
    assert page.locator("#grid-body [role=row]").count() < 80
    page.focus("#grid")
    page.keyboard.press("End")
    page.wait_for_selector("#row-4999")
    assert page.locator("#grid-body [role=row]").count() < 80
    page.click("[role=columnheader] button:has-text('COPY')")
    page.click("[role=columnheader] button:has-text('COPY')")
    page.evaluate("document.getElementById('grid').scrollTop = 0")
    page.wait_for_selector("#row-0")
    assert here.column("COPY")[0] == "4,999"


def test_failures_only(settings: Settings, tmp_path: Path, opened: Opener) -> None:
    """A report in which nothing runs has its reasons, an empty chart, and no code."""
    path = tmp_path / "failures.html"
    path.write_text(report_html([failures_only(settings)]), encoding="utf-8")
    here = opened(path)
    assert here.shown() == "4 of 4 configs"
    assert set(here.column("verdict")) == {"cannot run: threads"}
    assert here.page.is_visible("#chart-empty")
    here.page.click("#row-0 .fate")
    here.page.wait_for_selector("#code-view:not([hidden])")
    assert "2048 threads" in here.page.inner_text("#code-reasons")
    assert "not compiled" in here.page.inner_text(".pane-ptx")


def test_targets(gemm: Made, targets_page: Path, opened: Opener) -> None:
    """Each target has a tab with its own funnel, rows and link."""
    here = opened(targets_page)
    assert here.page.locator("#targets button").count() == 2
    here.page.click("#targets button:has-text('A100')")
    wanted = [v.predicted_us for v in by_rank(gemm.reports[1])]
    assert [float(text) for text in here.column("predicted µs")] == pytest.approx(wanted, rel=0.01)
    again = opened(targets_page, here.page.evaluate("location.hash"))
    assert again.rows() == here.rows()
    assert again.page.get_attribute("#targets button:has-text('A100')", "aria-pressed") == "true"


def test_measured_times(gemm: Made, tmp_path: Path, opened: Opener) -> None:
    """Measured times stand beside the predicted ones, and are the chart's other axis."""
    report = gemm.reports[0]
    cited: list[SampleStatistics | None] = [SampleStatistics(60, 40.0, 41.25, 44.5, 0.021)]
    times = {
        str(v.config): (2.0 * (v.predicted_us or 0), statistics)
        for v, statistics in zip(by_rank(report)[:5], cited + [None] * 4, strict=True)
    }
    dtypes = frozenset({"fp16"})
    timed = KernelTimings("tiled_matmul", report.shape, dtypes, "NVIDIA H200", times)
    path = tmp_path / "measured.html"
    path.write_text(
        report_html(with_timings([report], Timings("a run", (timed,)))), encoding="utf-8"
    )
    here = opened(path)
    assert here.column("pred / meas") == ["0.500"] * 5 + [""] * 3
    for column, shown in (("p90 µs", "41.25"), ("p99 µs", "44.50"), ("RSD %", "2.10")):
        assert here.column(column) == [shown] + [""] * 7
    assert here.page.input_value("#chart-x") == "measured_us"
    assert "5 configs" in (here.page.get_attribute("#chart", "aria-label") or "")
    assert "measured: a run, 5 of 8 configs" in (here.page.text_content("#notes") or "")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "view", ["#", "#view=code&id=0.0&at=ptx:40", "#view=compare&picked=0.0,0.5"]
)
def test_accessibility(view: str, scheme: str, targets_page: Path, opened: Opener) -> None:
    """Checked by axe, no view has anything wrong, light or dark."""
    here = opened(targets_page, view, color_scheme=scheme)
    here.page.wait_for_timeout(300)
    assert here.violations() == []


@pytest.mark.parametrize("view", ["#", "#view=code&id=0.0", "#view=compare&picked=0.0,0.5"])
def test_phone(view: str, targets_page: Path, opened: Opener) -> None:
    """At a phone's width nothing sticks out of the page."""
    here = opened(targets_page, view, viewport={"width": 390, "height": 844})
    here.page.wait_for_timeout(200)
    assert here.page.evaluate("document.documentElement.scrollWidth") <= 390
    if view == "#":
        titles = here.page.locator("#grid-head [role=columnheader] button").all_inner_texts()
        assert titles[0] == "predicted µs"
        assert "verdict" not in titles


def test_a_config_is_copied(gemm: Made, gemm_page: Path, opened: Opener) -> None:
    """The button copies the row in focus as Python, in the table and beside the code."""
    here = opened(gemm_page, permissions=["clipboard-read", "clipboard-write"])
    wanted = triton_config(by_rank(gemm.reports[0])[0].config)
    for button in ("#copy", "#code-copy"):
        here.page.click(button)
        here.until(lambda button=button: here.page.inner_text(button) == "Copied")
        assert here.page.evaluate("navigator.clipboard.readText()") == wanted
        here.page.keyboard.press("Escape")
        here.page.focus("#grid")
        here.page.keyboard.press("Enter")
