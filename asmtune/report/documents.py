"""Reports as JSON and CSV text."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from asmtune.base.json_codec import to_json
from asmtune.core.records.pruned import PruneReport
from asmtune.core.records.rows import verdict_row
from asmtune.core.records.verdicts import Verdict

FORMAT: Final = "asmtune-prune-report"
VERDICT_FORMAT: Final = "asmtune-verdict"
VERSION: Final = 1


def report_json(reports: Sequence[PruneReport]) -> str:
    """One document for all targets: `{"format", "version", "reports": [...]}`."""
    documents = [
        to_json(report) | {"counts": report.counts(), "dropped": _dropped(report)}
        for report in reports
    ]
    return document_text(FORMAT, {"reports": documents})


def document_text(form: str, document: Mapping[str, Any]) -> str:
    """JSON text of a document, which says of which form it is."""
    return json.dumps({"format": form, "version": VERSION, **document}, indent=1, allow_nan=False)


def verdict_json(
    report: PruneReport, verdict: Verdict, more: Mapping[str, Any] | None = None
) -> str:
    """One config of a report: `{"format", "version", "kernel", ..., "verdict", "notes"}`.

    Args:
        report: of all configs.
        verdict: of the one.
        more: what else is known of it, by name.
    """
    names = ("kernel", "shape", "dtypes", "target", "scorer", "versions", "notes")
    named = {name: to_json(getattr(report, name)) for name in names}
    ranked = sum(other.rank is not None for other in report.verdicts)
    own = {"ranked": ranked, "verdict": to_json(verdict)}
    return document_text(VERDICT_FORMAT, {**named, **own, **(more or {})})


def report_csv(reports: Sequence[PruneReport]) -> str:
    """One row a target and config; columns for axes and for every feature."""
    rows = [
        {"target": report.target, **verdict_row(verdict)}
        for report in reports
        for verdict in report.verdicts
    ]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _dropped(report: PruneReport) -> list[dict[str, Any]]:
    return [
        {"stage": stage, "reason": reason, "configs": count}
        for (stage, reason), count in report.dropped().items()
    ]
