"""Records as pandas frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asmtune.base.json_codec import to_json
from asmtune.base.pandas_frames import frame
from asmtune.core.records.rows import TRIED_DTYPES, VERDICT_DTYPES, tried_rows, verdict_row

if TYPE_CHECKING:
    import pandas as pd

    from asmtune.core.records.pruned import PruneReport
    from asmtune.core.records.tuned import TuneRecord


def report_frame(report: PruneReport) -> pd.DataFrame:
    """A row a verdict, in the report's order."""
    names = dict.fromkeys(n for verdict in report.verdicts for n in verdict.features or ())
    taken = {name for verdict in report.verdicts for name in verdict.config.kwargs}
    features = {n: "float64" for n in names if n not in taken and n not in VERDICT_DTYPES}
    facts = ("kernel", "shape", "dtypes", "target", "scorer", "versions", "notes")
    told: dict[str, Any] = {name: to_json(getattr(report, name)) for name in facts}
    return frame([*map(verdict_row, report.verdicts)], {**VERDICT_DTYPES, **features}, told)


def record_frame(record: TuneRecord) -> pd.DataFrame:
    """A row a config that was tried."""
    told = {"key": to_json(record.key), "provenance": to_json(record.provenance)}
    return frame(tried_rows(record), TRIED_DTYPES, told)
