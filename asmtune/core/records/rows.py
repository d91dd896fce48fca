"""Records as rows of plain values, one per config, for CSV files and pandas frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from asmtune.base.json_codec import to_json
from asmtune.base.pandas_frames import frame
from asmtune.core.config import OPTION_AXES, Config

if TYPE_CHECKING:
    import pandas as pd

    from asmtune.core.records.tuned import TuneRecord
    from asmtune.core.records.verdicts import PruneReport, Verdict


_OPTIONS: Final = dict.fromkeys(OPTION_AXES, "Int64")

VERDICT_DTYPES: Final[Mapping[str, str]] = {
    **_OPTIONS,
    "kept": "bool",
    "dropped_at": "string",
    "rank": "Int64",
    "score": "float64",
    "predicted_us": "float64",
    "bottleneck": "string",
    "reasons": "string",
}
"""Pandas dtypes of the columns of verdicts; features are `float64`, axes are inferred."""

TRIED_DTYPES: Final[Mapping[str, str]] = {
    **_OPTIONS,
    "winner": "bool",
    "median_us": "float64",
    "p20_us": "float64",
    "p80_us": "float64",
    "spread": "float64",
    "samples": "Int64",
    "failed_at": "string",
    "failure": "string",
    "detail": "string",
}
"""Pandas dtypes of the columns of timed and failed configs."""


def verdict_row(verdict: Verdict) -> dict[str, Any]:
    """Returns a verdict's row: its config's axes, the decision and its reasons, its features."""
    row: dict[str, Any] = {
        **_axes(verdict.config, {*VERDICT_DTYPES, "target"}),
        "kept": verdict.kept,
        "dropped_at": verdict.dropped_at,
        "rank": verdict.rank,
        "score": verdict.score,
        "predicted_us": verdict.predicted_us,
        "bottleneck": verdict.bottleneck,
        "reasons": "; ".join(map(str, verdict.reasons)),
    }
    # A config's own num_warps is not overwritten by the feature of that name.
    return row | {n: value for n, value in (verdict.features or {}).items() if n not in row}


def tried_rows(record: TuneRecord) -> list[dict[str, Any]]:
    """Returns a row per config: timed ones, fastest first, then failed ones."""
    timed = sorted(record.measurements, key=lambda measurement: measurement.median_us)
    rows = [
        {
            **_axes(measurement.config, {*TRIED_DTYPES}),
            "winner": measurement.config == record.winner,
            "median_us": measurement.median_us,
            "p20_us": measurement.p20_us,
            "p80_us": measurement.p80_us,
            "spread": measurement.spread if measurement.median_us else None,
            "samples": len(measurement.samples_us),
        }
        for measurement in timed
    ]
    return rows + [
        {
            **_axes(config, {*TRIED_DTYPES}),
            "winner": config == record.winner,
            "failed_at": failure.stage,
            "failure": failure.kind,
            "detail": failure.detail,
        }
        for config, failure in record.failures
    ]


def _axes(config: Config, columns: set[str]) -> dict[str, Any]:
    """Returns a config's values; an axis named like a column, as `rank`, becomes `config.rank`."""
    own = {f"config.{n}" if n in columns else n: value for n, value in config.kwargs.items()}
    axes = {**own, **{option: getattr(config, option) for option in OPTION_AXES}}
    if config.ir_override is not None:
        axes["ir_override"] = config.to_dict()["ir_override"]
    return axes


def report_frame(report: PruneReport) -> pd.DataFrame:
    """Builds a frame with a row per verdict, in the report's order."""
    names = dict.fromkeys(n for verdict in report.verdicts for n in verdict.features or ())
    taken = {name for verdict in report.verdicts for name in verdict.config.kwargs}
    features = {n: "float64" for n in names if n not in taken and n not in VERDICT_DTYPES}
    facts = ("kernel", "shape", "dtypes", "target", "scorer", "versions", "notes")
    attrs: dict[str, Any] = {name: to_json(getattr(report, name)) for name in facts}
    return frame([*map(verdict_row, report.verdicts)], {**VERDICT_DTYPES, **features}, attrs)


def record_frame(record: TuneRecord) -> pd.DataFrame:
    """Builds a frame with a row per config that was timed or failed."""
    attrs = {"key": to_json(record.key), "provenance": to_json(record.provenance)}
    return frame(tried_rows(record), TRIED_DTYPES, attrs)
