"""Every table at the widths of terminals: no name and no figure is cut, and no line is too wide."""

from __future__ import annotations

import pytest
from widths import (
    SAVED,
    WIDTHS,
    assert_whole,
    golden_path,
    parts_of,
    rendered,
    reports_of,
    saved_report,
    words_of,
)

from asmtune.core.config import varying
from asmtune.core.records.verdicts import PruneReport
from asmtune.report.cells import plain_table
from asmtune.report.tables import prune_table

NARROW = (24, 40)
"""Widths below those at which every name is whole."""


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", SAVED)
def test_the_committed_texts(name: str, width: int) -> None:
    """A saved report is shown as committed; `python tests/report/widths.py` writes it anew."""
    assert saved_report(name, width) == golden_path(name, width).read_text(encoding="utf-8")


def figures(report: PruneReport) -> set[str]:
    """Figures that no width may hide: axes, rank, predicted time and limit of what is kept."""
    kept = report.kept
    values = {str(v.config.to_dict()[a]) for v in kept for a in varying([v.config for v in kept])}
    for verdict in kept:
        values |= {str(verdict.rank), f"{verdict.predicted_us:.1f}", verdict.bottleneck or ""}
    return values


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", SAVED)
def test_a_saved_report_is_whole(name: str, width: int) -> None:
    """What matters of each kept config is shown, under the name of its axis."""
    reports = reports_of(name)
    needed = set[str]().union(*map(figures, reports)) | {report.target for report in reports}
    text = assert_whole(prune_table(reports), width, needed)
    axes = varying(list(dict.fromkeys(v.config for report in reports for v in report.kept)))
    assert {part for axis in axes for part in parts_of(axis)} <= words_of(text)


@pytest.mark.parametrize("width", NARROW)
@pytest.mark.parametrize("name", SAVED)
def test_below_sixty_columns(name: str, width: int) -> None:
    """A report is readable however narrow the terminal is: blocks, each line within the width."""
    text = saved_report(name, width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    first = reports_of(name)[0].kept[0]
    assert f"{first.predicted_us:.1f}" in text


def test_columns_leave_by_importance() -> None:
    """The first of the spare columns leaves first, and the table says which and what shows all."""
    table = plain_table("", ("name", "least", "more", "us"), spare=("least", "more"))
    table.add_row("a" * 30, "1" * 10, "2" * 10, "3" * 10)
    assert "left out" not in rendered(table, 71)
    text = rendered(table, 70)
    assert "left out at 70 columns: least; 71 columns show all" in text
    assert "2" * 10 in text
    assert "1" * 10 not in text
