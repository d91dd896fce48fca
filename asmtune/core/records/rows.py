"""Records as rows of plain values for CSV files and pandas frames, and as HTML for notebooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from asmtune.base.html import HtmlTable, document
from asmtune.base.json_codec import to_json
from asmtune.base.pandas_frames import frame
from asmtune.base.text import shortened
from asmtune.core.config import ALTERNATIVE, OPTION_AXES, Config, varying

if TYPE_CHECKING:
    import pandas as pd

    from asmtune.core.records.tuned import Measurement, TuneRecord
    from asmtune.core.records.verdicts import Features, PruneReport, Selection, Verdict


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

MEASURED: Final = ("measured_us", "measured_p90_us", "measured_p99_us", "measured_rsd")
"""Columns of verdicts with measured times."""

TRIED_DTYPES: Final[Mapping[str, str]] = {
    **_OPTIONS,
    "winner": "bool",
    "median_us": "float64",
    "p20_us": "float64",
    "p80_us": "float64",
    "spread": "float64",
    "p50_us": "float64",
    "p90_us": "float64",
    "p99_us": "float64",
    "rsd": "float64",
    "samples": "Int64",
    "failed_at": "string",
    "failure": "string",
    "detail": "string",
}
"""Pandas dtypes of the columns of timed and failed configs."""


def verdict_row(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict's row: its config's axes, the decision and its reasons, its features."""
    row: dict[str, Any] = {
        **_axes(verdict.config, {*VERDICT_DTYPES, *MEASURED, "target"}),
        "kept": verdict.kept,
        "dropped_at": verdict.dropped_at,
        "rank": verdict.rank,
        "score": verdict.score,
        "predicted_us": verdict.predicted_us,
        **_measured(verdict),
        "bottleneck": verdict.bottleneck,
        "reasons": "; ".join(map(str, verdict.reasons)),
    }
    # A config's own num_warps is not overwritten by the feature of that name.
    return row | {n: value for n, value in (verdict.features or {}).items() if n not in row}


def _measured(verdict: Verdict) -> dict[str, float | None]:
    own = verdict.measured
    cited = () if own is None else (own.p90_us, own.p99_us, own.rsd)
    times = () if verdict.measured_us is None else (verdict.measured_us, *cited)
    return dict(zip(MEASURED, times, strict=False))


def tried_rows(record: TuneRecord) -> list[dict[str, Any]]:
    """Return a row per config: timed ones, fastest first, then failed ones."""
    timed = sorted(record.measurements, key=lambda measurement: measurement.median_us)
    rows = [
        {
            **_axes(measurement.config, {*TRIED_DTYPES}),
            "winner": measurement.config == record.winner,
            "median_us": measurement.median_us,
            "p20_us": measurement.p20_us,
            "p80_us": measurement.p80_us,
            "spread": measurement.spread if measurement.median_us else None,
            **measurement.cited(),
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
    """Return a config's values; an axis named like a column, as `rank`, becomes `config.rank`."""
    own = {f"config.{n}" if n in columns else n: value for n, value in config.kwargs.items()}
    axes = {**own, **{option: getattr(config, option) for option in OPTION_AXES}}
    if config.ir_override is not None:
        axes["ir_override"] = config.to_dict()["ir_override"]
    if config.alternative is not None:
        axes[ALTERNATIVE] = config.alternative
    return axes


def report_frame(report: PruneReport) -> pd.DataFrame:
    """Build a frame with a row per verdict, in the report's order."""
    names = dict.fromkeys(n for verdict in report.verdicts for n in verdict.features or ())
    taken = {name for verdict in report.verdicts for name in verdict.config.kwargs}
    features = {n: "float64" for n in names if n not in taken and n not in VERDICT_DTYPES}
    facts = ("kernel", "shape", "dtypes", "target", "scorer", "versions", "notes")
    attrs: dict[str, Any] = {name: to_json(getattr(report, name)) for name in facts}
    return frame([*map(verdict_row, report.verdicts)], {**VERDICT_DTYPES, **features}, attrs)


def record_frame(record: TuneRecord) -> pd.DataFrame:
    """Build a frame with a row per config that was timed or failed."""
    attrs = {"key": to_json(record.key), "provenance": to_json(record.provenance)}
    return frame(tried_rows(record), TRIED_DTYPES, attrs)


ROWS: Final = 20
"""Rows shown of a list; a line below it counts the others."""

_LENGTH: Final = 160
"""Characters shown of a message or name."""

_FEATURES: Final = {
    "regs_per_thread": "registers",
    "spill_words": "spilled words",
    "shared_bytes": "shared memory, B",
    "occupancy": "occupancy",
}
"""Features of the kept configs, with their headings."""


def report_html(report: PruneReport) -> str:
    """Show the funnel's counts and reasons, then the kept configs, best first."""
    title = f"{report.kernel} {_words(report.shape)} on {report.target}"
    lines = [f"{_dtypes(report.dtypes)}; ranked by {report.scorer}", report.summary()]
    lines += [line for line in (_expected(report.selection),) if line]
    lines += report.notes
    return document(title, lines, [_funnel(report), _kept(report.kept)])


def record_html(record: TuneRecord) -> str:
    """Show the winner with its time, then the timed configs, fastest first, then failures."""
    key, provenance = record.key, record.provenance
    time = "not timed" if record.median_us is None else f"{_number(record.median_us)} us"
    lines = [
        f"winner: {_cut(str(record.winner))}: {time}",
        f"{len(record.measurements)} configs timed, {len(record.failures)} failed; "
        f"triton {provenance.triton}, torch {provenance.torch}, driver {provenance.driver}, "
        f"{provenance.date}",
    ]
    title = f"{key.kernel} {_words(key.shape)} {_dtypes(key.dtypes)} on {key.device}"
    return document(title, lines, [_timed(record), _failed(record)])


def features_html(features: Features) -> str:
    """Show all features by name, in the order of `asmtune model features`."""
    rows = [(name, _number(value)) for name, value in features.items()]
    shown = HtmlTable("Features", ("feature", "value"), rows, frozenset({0}))
    line = "units are in the names; `asmtune model features` says what each means"
    return document(f"{len(features)} features of a compiled config", [line], [shown])


def _funnel(report: PruneReport) -> HtmlTable:
    """Count the dropped configs by stage and rule, with one reason in full for each."""
    examples: dict[tuple[str, str], str] = {}
    for verdict in report.verdicts:
        if verdict.dropped_at is not None:
            reason = verdict.reasons[0] if verdict.reasons else None
            where = (verdict.dropped_at, reason.rule if reason else verdict.dropped_at)
            examples.setdefault(where, _cut(reason.text) if reason else "")
    rows = [("space", "candidates", str(len(report.verdicts)), "")]
    for (stage, rule), count in report.dropped().items():
        rows.append((stage, rule, f"-{count}", examples[stage, rule]))
    rows.append(("kept", f"by {report.scorer}", str(len(report.kept)), ""))
    headings = ("stage", "reason", "configs", "such as")
    chosen = frozenset({len(rows) - 1})
    return HtmlTable("Dropped configs by stage", headings, rows, frozenset({0, 1, 3}), chosen)


def _kept(kept: Sequence[Verdict]) -> HtmlTable:
    shown = kept[:ROWS]
    axes = varying([verdict.config for verdict in kept])
    rows = [(*_axis_cells(verdict.config, axes), *_judged(verdict)) for verdict in shown]
    headings = (*axes, "rank", "predicted, us", "limit", *_FEATURES.values())
    words = frozenset({len(axes) + 2})
    return HtmlTable("Kept, best first", headings, rows, words, left_out=_left(kept, shown))


def _judged(verdict: Verdict) -> tuple[str, ...]:
    features: Mapping[str, float] = verdict.features or {}
    time = "" if verdict.predicted_us is None else _number(verdict.predicted_us)
    numbers = (_number(features[name]) if name in features else "" for name in _FEATURES)
    return (str(verdict.rank or ""), time, verdict.bottleneck or "", *numbers)


def _timed(record: TuneRecord) -> HtmlTable:
    every = sorted(record.measurements, key=lambda measurement: measurement.median_us)
    # The winner is not always the fastest: of equals it is the one with fewer registers.
    shown = [m for place, m in enumerate(every) if place < ROWS or m.config == record.winner]
    axes = varying([measurement.config for measurement in every])
    times = [(*map(_number, (m.median_us, m.p20_us, m.p80_us)), *_cited(m)) for m in shown]
    rows = [(*_axis_cells(m.config, axes), *us) for m, us in zip(shown, times, strict=True)]
    headings = (*axes, "median, us", "p20, us", "p80, us", "p90, us", "p99, us", "RSD", "samples")
    chosen = frozenset(i for i, m in enumerate(shown) if m.config == record.winner)
    caption = "Timed, fastest first; the winner stands out"
    return HtmlTable(caption, headings, rows, chosen=chosen, left_out=_left(every, shown))


def _cited(measurement: Measurement) -> tuple[str, ...]:
    found = measurement.statistics
    if found is None:
        return ("-", "-", "-", "0")
    rsd = "-" if found.rsd is None else f"{found.rsd:.1%}"
    return (_number(found.p90_us), _number(found.p99_us), rsd, str(found.samples))


def _failed(record: TuneRecord) -> HtmlTable:
    """Count the failures by stage and kind, with one of each in full."""
    counts = Counter((failure.stage, failure.kind) for _, failure in record.failures)
    examples = {(f.stage, f.kind): f"{config}: {f.detail}" for config, f in record.failures[::-1]}
    rows = [(*where, str(n), _cut(examples[where])) for where, n in counts.most_common()]
    headings = ("stage", "kind", "configs", "such as")
    return HtmlTable("Failed", headings, rows[:ROWS], frozenset({0, 1, 3}), left_out=_left(rows))


def _left(every: Sequence[Any], shown: Sequence[Any] | None = None) -> str:
    """Return a note on the rows that are not shown; "" if all are."""
    count = len(every) - (min(len(every), ROWS) if shown is None else len(shown))
    return f"{count} of {len(every)} are left out; to_pandas() has all" if count else ""


def _expected(selection: Selection | None) -> str:
    if selection is None or selection.expected_share is None or selection.chance_dropped is None:
        return ""
    return (
        f"keep {selection.keep}: expected share of the best speed {selection.expected_share:.3f}, "
        f"chance that the best is dropped {selection.chance_dropped:.0%}{selection.caveat}"
        + (f"; {selection.remark}" if selection.remark else "")
    )


def _axis_cells(config: Config, axes: Iterable[str]) -> tuple[str, ...]:
    values = config.to_dict()
    return tuple(_cut(str(values.get(axis, "-"))) for axis in axes)


def _words(values: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())


def _dtypes(dtypes: Mapping[str, str]) -> str:
    return "/".join(dict.fromkeys(dtypes.values()))


def _cut(text: str) -> str:
    return shortened(" ".join(text.split()), _LENGTH)


def _number(value: float) -> str:
    """Format whole numbers in full, others with five significant digits."""
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.5g}"
