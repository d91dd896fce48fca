"""Records in a notebook: what their HTML holds, and that nothing in it can do harm."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from html_tables import Page, html_of
from hypothesis import given
from hypothesis import strategies as st
from sample_records import AWKWARD, record_of

from asmtune.base.html import HtmlTable, document
from asmtune.core.records.rows import ROWS
from asmtune.core.records.verdicts import Features, PruneReport, Reason, Selection


def test_the_funnel_comes_first(pruned: PruneReport) -> None:
    """The first table counts what fell by stage and reason, and its counts add up."""
    page = html_of(pruned)
    first = page.tables[0]
    assert first.caption == "Dropped configs by stage"
    counts = {tuple(row[:2]): int(row[2]) for row in first.rows[1:]}
    fallen = {where: -count for where, count in pruned.dropped().items()}
    kept = ("kept", "by roofline")
    assert counts == {("space", "candidates"): 6, **fallen, kept: len(pruned.kept)}
    assert sum(counts.values()) == 2 * len(pruned.kept)
    assert pruned.summary() in pruned._repr_html_()
    reason = next(v for v in pruned.verdicts if v.dropped_at == "rules").reasons[0].text
    assert reason in (row[3] for row in first.rows)


def test_kept_configs_have_their_numbers(pruned: PruneReport) -> None:
    """A row a kept config, best first, with its axes, rank, prediction and registers."""
    table = html_of(pruned).table("Kept")
    heads, *rows = table.rows
    told = [dict(zip(heads, row, strict=True)) for row in rows]
    assert [row["rank"] for row in told] == [str(v.rank) for v in pruned.kept]
    for row, verdict in zip(told, pruned.kept, strict=True):
        assert verdict.features is not None
        assert verdict.predicted_us is not None
        assert int(row["registers"]) == verdict.features["regs_per_thread"]
        assert float(row["predicted, us"]) == pytest.approx(verdict.predicted_us, rel=1e-4)
        assert row["num_warps"] == str(verdict.config.num_warps)


def test_the_error_of_another_device_is_named(pruned: PruneReport) -> None:
    """What the kept are worth says on which device it was measured, if not on the target."""
    here = Selection("2", 2, 0.99, 0.17, "roofline on 9 tasks")
    text = replace(pruned, selection=here)._repr_html_()
    assert "chance that the best is dropped 17%" in text
    assert "not on this target" not in text
    text = replace(pruned, selection=replace(here, other_device="NVIDIA H200"))._repr_html_()
    assert "dropped 17%, both measured on NVIDIA H200, not on this target" in text


def test_a_long_report_is_abridged(pruned: PruneReport) -> None:
    """Of 1,000 kept configs the first are shown, and how many are left out is told."""
    verdict = pruned.kept[0]
    many = tuple(replace(verdict, rank=rank) for rank in range(1, 1001))
    long = replace(pruned, verdicts=many)
    rows = html_of(long).table("Kept").rows
    assert len(rows) == 1 + ROWS + 1
    assert rows[-1] == [f"{1000 - ROWS} of 1000 are left out; to_pandas() has all"]
    assert len(long._repr_html_()) < 20_000


def test_a_record_names_its_winner() -> None:
    """The winner's time is on top, and its row stands out wherever it is in the order."""
    record = record_of(50)
    page = html_of(record)
    assert any(f"{record.winner}: 1000 us" in line for line in page.lines)
    table = page.table("Timed")
    (chosen,) = table.chosen
    assert table.rows[chosen][0] == "1"
    assert len(table.rows) == 1 + ROWS + 1 + 1
    assert table.rows[-1] == ["29 of 50 are left out; to_pandas() has all"]
    assert page.table("Failed").rows[1][:3] == ["ptxas", "registers", "2"]


def test_features_are_listed() -> None:
    """Every feature has a row; whole numbers are in full, others with the digits that count."""
    numbers = {"a_bytes": 16777216.0, "share": 1 / 3, "none": float("nan")}
    page = html_of(Features(numbers))
    assert page.tables[0].rows[1:] == [
        ["a_bytes", "16777216"],
        ["share", "0.33333"],
        ["none", "nan"],
    ]


def test_names_are_escaped(pruned: PruneReport) -> None:
    """Names with tags, quotes and control codes appear as text, and open no tag."""
    shown = AWKWARD.replace("\x00", "\ufffd").replace("\ud800", "\ufffd")
    reason = (Reason(AWKWARD, AWKWARD),)
    verdicts = tuple(replace(v, reasons=reason) for v in pruned.verdicts)
    report = replace(pruned, kernel=AWKWARD, verdicts=verdicts, notes=(AWKWARD,))
    plain = html_of(replace(pruned, notes=("-",)))
    for page, tags in ((html_of(report), plain.tags), (html_of(record_of(3, AWKWARD)), None)):
        assert any(shown in line for line in page.lines)
        assert any(shown in cell for t in page.tables for row in t.rows for cell in row)
        assert "b" not in page.tags
        # As many rows fall for one reason here as for two before.
        assert tags is None or set(page.tags) == set(tags)


@given(st.text(), st.lists(st.text(), min_size=2, max_size=2))
def test_any_text_is_text(title: str, cells: list[str]) -> None:
    """Whatever is written, the page has the same tags, and every cell reads as it was."""
    page = Page(document(title, [], [HtmlTable("t", ("a", "b"), [cells])]))
    around = ["div", "style", "div", "strong", "table", "caption"]
    assert page.tags == [*around, "thead", "tr", "th", "th", "tbody", "tr", "td", "td"]
    for cell, wanted in zip(page.tables[0].rows[1], cells, strict=True):
        assert [a for a in cell if a != "\ufffd"] == [
            b for a, b in zip(cell, wanted, strict=True) if a != "\ufffd"
        ]


def test_it_stands_alone_in_light_and_dark(pruned: PruneReport) -> None:
    """No script, link or image; no colour but the notebook's own and half transparent grey."""
    for record in (pruned, record_of(3), Features({"a": 1.0})):
        page = html_of(record)
        assert {"script", "link", "img", "iframe"}.isdisjoint(page.tags)
        assert {name for name, _ in page.attributes} <= {"class", "scope", "colspan"}
        colours = re.findall(r"(?:color|background|border\S*):\s*([^;}]+)", page.style)
        assert colours
        for colour in colours:
            assert re.fullmatch(
                r"inherit|collapse|(1px solid )?rgba\(128, 128, 128, 0\.\d+\)", colour
            )
