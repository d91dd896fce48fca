"""Prune reports as JSON and CSV text."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final

from asmtune.base.json_codec import to_json
from asmtune.core.config import Config
from asmtune.core.records.verdicts import PruneReport, Verdict
from asmtune.report.cells import cell, dtype_words, number, spreadsheet_text, words

FORMAT: Final = "asmtune-prune-report"
VERDICT_FORMAT: Final = "asmtune-verdict"
VERSION: Final = 1


def report_json(reports: Sequence[PruneReport]) -> str:
    """Write one document for all targets: `{"format", "version", "reports": [...]}`."""
    documents = [
        to_json(report) | {"counts": report.counts(), "dropped": dropped_rows(report)}
        for report in reports
    ]
    for report, document in zip(reports, documents, strict=True):
        if report.stored is not None:
            document["stored"] = report.stored.config.to_dict()
    return document_text(FORMAT, {"reports": documents})


def document_text(form: str, document: Mapping[str, Any]) -> str:
    """Write a document as JSON text, with its format and version."""
    return json.dumps({"format": form, "version": VERSION, **document}, indent=1, allow_nan=False)


def verdict_json(
    report: PruneReport, verdict: Verdict, more: Mapping[str, Any] | None = None
) -> str:
    """Make a document of a config: `{"format", "version", "kernel", ..., "verdict", "notes"}`.

    `more` has further fields of the document, by name.
    """
    names = ("kernel", "shape", "dtypes", "target", "scorer", "versions", "notes")
    named = {name: to_json(getattr(report, name)) for name in names}
    ranked = sum(other.rank is not None for other in report.verdicts)
    own = {"ranked": ranked, "verdict": to_json(verdict)}
    return document_text(VERDICT_FORMAT, {**named, **own, **(more or {})})


def report_csv(reports: Sequence[PruneReport]) -> str:
    """Write a row for each target and config, with columns for axes and for every feature."""
    launches = {(report.kernel, words(report.shape)) for report in reports}
    rows = [
        {**({"kernel": report.kernel} if len(launches) > 1 else {}), "target": report.target}
        | verdict.row()
        for report in reports
        for verdict in report.verdicts
    ]
    return "".join(csv_parts(rows, list(dict.fromkeys(name for row in rows for name in row))))


class _Echo:
    """A file whose writers return what they wrote."""

    def write(self, text: str) -> str:
        return text


def csv_parts(rows: Iterable[Mapping[str, Any]], columns: Sequence[str] = ()) -> Iterator[str]:
    """Yield the lines of CSV, the columns first: by default the names of the first row."""
    writer, left = csv.writer(_Echo(), lineterminator="\n"), iter(rows)
    for first in islice(left, 1):
        names = columns or list(first)
        yield writer.writerow(map(_csv_cell, names))
        for row in chain([first], left):
            yield writer.writerow([_csv_cell(row.get(name, "")) for name in names])


def _csv_cell(value: Any) -> Any:
    if isinstance(value, dict | list):
        value = cell(value)
    return spreadsheet_text(value) if isinstance(value, str) else value


def triton_config(config: Config) -> str:
    """Write a config as Python makes a `triton.Config` of it."""
    options = [f"num_warps={config.num_warps}", f"num_stages={config.num_stages}"]
    options += [f"num_ctas={config.num_ctas}"] if config.num_ctas != 1 else []
    options += [f"maxnreg={config.maxnreg}"] if config.maxnreg is not None else []
    constexprs = ", ".join(f'"{name}": {value!r}' for name, value in config.kwargs.items())
    return f"triton.Config({{{constexprs}}}, {', '.join(options)})"


def triton_configs(report: PruneReport) -> str:
    """Write the kept configs as a list of Python, the best first, as `triton.autotune` takes it."""
    rows = [
        f"    {triton_config(verdict.config)},"
        f"  # rank {verdict.rank or '-'}, {number(verdict.predicted_us)} us predicted"
        f"{'; add the pre_hook' * (verdict.config.pre_hook is not None)}\n"
        for verdict in report.kept
    ]
    return f"[\n{''.join(rows)}]"


def python_file(report: PruneReport) -> str:
    """Write the kept configs as a file of Python, to be imported beside the kernel."""
    launch = f"{report.kernel} at {words(report.shape)} {dtype_words(report.dtypes)}"
    return (
        f'"""Configs of {launch} on {report.target}."""\n\n'
        "import triton\nimport triton.language\n\n"
        f"CONFIGS = {triton_configs(report)}\n"
    )


def dropped_rows(report: PruneReport) -> list[dict[str, Any]]:
    """Count the dropped configs by stage and reason."""
    return [
        {"stage": stage, "reason": reason, "configs": count}
        for (stage, reason), count in report.dropped().items()
    ]
