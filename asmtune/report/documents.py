"""Reports as JSON and CSV text."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from asmtune.config import OPTION_AXES
from asmtune.records import PruneReport, Verdict, to_json

FORMAT: Final = "asmtune-prune-report"
VERDICT_FORMAT: Final = "asmtune-verdict"
VERSION: Final = 1


def report_json(reports: Sequence[PruneReport]) -> str:
    """One document for all targets: `{"format", "version", "reports": [...]}`."""
    documents = [to_json(report) | {"dropped": _dropped(report)} for report in reports]
    return document_text(FORMAT, {"reports": documents})


def document_text(form: str, document: Mapping[str, Any]) -> str:
    """JSON text of a document, which says of which form it is."""
    return json.dumps({"format": form, "version": VERSION, **document}, indent=1, allow_nan=False)


def verdict_json(report: PruneReport, verdict: Verdict) -> str:
    """One config of a report: `{"format", "version", "kernel", ..., "verdict", "notes"}`."""
    names = ("kernel", "shape", "dtypes", "target", "scorer", "versions", "notes")
    named = {name: to_json(getattr(report, name)) for name in names}
    ranked = sum(other.rank is not None for other in report.verdicts)
    return document_text(VERDICT_FORMAT, named | {"ranked": ranked, "verdict": to_json(verdict)})


def report_csv(reports: Sequence[PruneReport]) -> str:
    """One row a target and config; columns for axes and for every feature."""
    rows = [_row(report, verdict) for report in reports for verdict in report.verdicts]
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


def _row(report: PruneReport, verdict: Verdict) -> dict[str, Any]:
    row: dict[str, Any] = {
        "target": report.target,
        **verdict.config.kwargs,
        **{option: getattr(verdict.config, option) for option in OPTION_AXES},
        "kept": verdict.kept,
        "dropped_at": verdict.dropped_at or "",
        "rank": verdict.rank or "",
        "score": "" if verdict.score is None else verdict.score,
        "predicted_us": "" if verdict.predicted_us is None else verdict.predicted_us,
        "bottleneck": verdict.bottleneck or "",
        "reasons": "; ".join(map(str, verdict.reasons)),
    }
    # A config's own num_warps is not overwritten by the feature of that name.
    return row | {n: value for n, value in (verdict.features or {}).items() if n not in row}
