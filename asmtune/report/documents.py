"""Prune reports as JSON and CSV text, and read back from JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from asmtune.base.errors import InputError
from asmtune.base.json_checks import parse_json
from asmtune.base.json_codec import to_json
from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.features import Features
from asmtune.core.records.pruned import PruneReport, Selection
from asmtune.core.records.rows import verdict_row
from asmtune.core.records.verdicts import Reason, Verdict

FORMAT: Final = "asmtune-prune-report"
VERDICT_FORMAT: Final = "asmtune-verdict"
VERSION: Final = 1


def report_json(reports: Sequence[PruneReport]) -> str:
    """Writes one document for all targets: `{"format", "version", "reports": [...]}`."""
    documents = [
        to_json(report) | {"counts": report.counts(), "dropped": dropped_rows(report)}
        for report in reports
    ]
    return document_text(FORMAT, {"reports": documents})


def document_text(form: str, document: Mapping[str, Any]) -> str:
    """Writes a document as JSON text, with its format and version."""
    return json.dumps({"format": form, "version": VERSION, **document}, indent=1, allow_nan=False)


def verdict_json(
    report: PruneReport, verdict: Verdict, more: Mapping[str, Any] | None = None
) -> str:
    """Makes a document of a config: `{"format", "version", "kernel", ..., "verdict", "notes"}`.

    `more` has further fields of the document, by name.
    """
    names = ("kernel", "shape", "dtypes", "target", "scorer", "versions", "notes")
    named = {name: to_json(getattr(report, name)) for name in names}
    ranked = sum(other.rank is not None for other in report.verdicts)
    own = {"ranked": ranked, "verdict": to_json(verdict)}
    return document_text(VERDICT_FORMAT, {**named, **own, **(more or {})})


def report_csv(reports: Sequence[PruneReport]) -> str:
    """Writes a row for each target and config, with columns for axes and for every feature."""
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


def dropped_rows(report: PruneReport) -> list[dict[str, Any]]:
    """Counts the dropped configs by stage and reason."""
    return [
        {"stage": stage, "reason": reason, "configs": count}
        for (stage, reason), count in report.dropped().items()
    ]


_T = TypeVar("_T")


def read_reports(path: Path) -> list[PruneReport]:
    """Reads the reports of a file, one a target.

    Raises:
        InputError: it cannot be read, is no such file, is of a newer version, or a field is
            missing or wrong; names the file and the field.
    """
    try:
        document = parse_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    except ValueError as error:
        raise InputError(f"{path}: not whole JSON ({error}); write the report again") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError(
            f"{path}: no report: expected the JSON of `asmtune prune-report --format json`"
        )
    version = document.get("version")
    if type(version) is not int or not 1 <= version <= VERSION:
        raise InputError(
            f"{path}: version {version!r}, and this asmtune reads 1 to {VERSION}: upgrade asmtune"
        )
    try:
        reports = [_report(value) for value in document["reports"]]
    except KeyError as error:
        raise InputError(f"{path}: no field {error}; write the report again") from error
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(f"{path}: {error}; write the report again") from error
    if not reports:
        raise InputError(f"{path}: it holds no report; write it again")
    return reports


def _report(value: Mapping[str, Any]) -> PruneReport:
    return PruneReport(
        kernel=_text(value["kernel"]),
        shape=dict(value["shape"]),
        dtypes=dict(value["dtypes"]),
        target=_text(value["target"]),
        scorer=_text(value["scorer"]),
        verdicts=tuple(_verdict(verdict) for verdict in value["verdicts"]),
        seconds=dict(value["seconds"]),
        versions=dict(value["versions"]),
        notes=tuple(_text(note) for note in value["notes"]),
        selection=_if_there(_selection, value["selection"]),
        compiled=_if_there(_selection, value["compiled"]),
    )


def _verdict(value: Mapping[str, Any]) -> Verdict:
    dropped_at = value["dropped_at"]
    if dropped_at not in (None, "rules", "sketch", "compile", "score"):
        raise ValueError(f"dropped_at is {dropped_at!r}, which is no stage")
    return Verdict(
        config=Config.from_dict(dict(value["config"])),
        kept=bool(value["kept"]),
        dropped_at=dropped_at,
        rank=_if_there(_rank, value["rank"]),
        score=_if_there(_number, value["score"]),
        reasons=tuple(Reason(_text(r["rule"]), _text(r["text"])) for r in value["reasons"]),
        features=_if_there(_features, value["features"]),
        failure=_if_there(_failure, value["failure"]),
        artifact=_if_there(_text, value["artifact"]),
        predicted_us=_if_there(_number, value["predicted_us"]),
        bottleneck=_if_there(_text, value["bottleneck"]),
    )


def _features(value: Mapping[str, Any]) -> Features:
    return Features({name: _number(number) for name, number in value.items()})


def _failure(value: Mapping[str, Any]) -> Failure:
    return Failure(*(_text(value[name]) for name in ("stage", "kind", "detail")))


def _selection(value: Mapping[str, Any]) -> Selection:
    return Selection(**value)


def _if_there(read: Callable[[Any], _T], value: Any) -> _T | None:
    return None if value is None else read(value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} where a number is expected")
    return value


def _rank(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} where a rank is expected")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} where a text is expected")
    return value
