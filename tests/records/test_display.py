"""Records in a notebook: frames of pandas under lines of text, in which nothing can do harm."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sample_records import AWKWARD, record_of

from asmtune.core.records.rows import ROWS
from asmtune.core.records.verdicts import Features, PruneReport, Reason

pytest.importorskip("pandas", reason="no pandas: pip install '.[notebooks]'")


def test_a_report_shows_its_verdicts(pruned: PruneReport) -> None:
    """Lines say what it is of; columns are the axes, the verdict and four features."""
    text = pruned._repr_html_() or ""
    assert pruned.summary() in text
    assert f"{pruned.kernel} n=4096 on H200" in text
    for name in ("BLOCK", "num_warps", "rank", "reasons", "regs_per_thread", "occupancy"):
        assert f"<th>{name}</th>" in text
    assert "unique_bytes" not in text
    assert text.count("<tr") == 1 + len(pruned.verdicts)


def test_a_long_report_is_cut(pruned: PruneReport) -> None:
    """Twenty rows of a thousand are shown, and a row of dots."""
    many = tuple(replace(pruned.kept[0], rank=rank) for rank in range(1, 1001))
    text = replace(pruned, verdicts=many)._repr_html_() or ""
    assert text.count("<tr") == 1 + ROWS + 1
    assert len(text) < 20_000


def test_a_record_names_its_winner() -> None:
    """The winner's time is on top, the fastest config first among the rows."""
    record = record_of(5)
    text = record._repr_html_() or ""
    assert f"winner: {record.winner}: 1000 us".replace("<", "&lt;")[:20] in text
    assert "5 configs timed, 2 failed" in text
    assert text.index("996.0") < text.index("<td>1000.0")


def test_features_are_listed() -> None:
    """Every feature has a row."""
    text = Features({"a_bytes": 16777216.0, "share": 1 / 3})._repr_html_() or ""
    assert "<th>a_bytes</th>" in text
    assert "3.333333e-01" in text


def test_names_are_escaped(pruned: PruneReport) -> None:
    """Names with tags and quotes appear as text, and open no tag."""
    reason = (Reason(AWKWARD, AWKWARD),)
    verdicts = tuple(replace(v, reasons=reason) for v in pruned.verdicts)
    report = replace(pruned, kernel=AWKWARD, verdicts=verdicts, notes=(AWKWARD,))
    for text in (report._repr_html_(), record_of(3, AWKWARD)._repr_html_()):
        assert text is not None
        assert "<b>" not in text
        assert "&lt;b&gt;" in text
