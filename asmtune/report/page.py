"""The page: reports as one self-contained HTML file that opens from disk.

Its columns are those of the terminal's table and of CSV; bytes are in KiB. A policy forbids all
that the page does not hold.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, Final

from asmtune.core.records.verdicts import PruneReport, Verdict
from asmtune.predict.features.catalog import FEATURES
from asmtune.report.cells import dtype_words, heading
from asmtune.report.documents import dropped_rows, triton_config
from asmtune.report.explain import TERMS
from asmtune.report.tables import COLUMNS, TIME, headline, is_guess, worth

_VERDICT: Final = {
    "rank": ("rank", "Place in the scorer's ranking; 1 is its favourite."),
    "fate": ("verdict", "Kept to be timed, or the stage and the reason of its loss."),
    "predicted_us": (TIME.heading, TIME.meaning),
    "bottleneck": ("limit", "The largest part of the predicted time."),
    "score": ("score", "The scorer's own scale; higher is better."),
    "reasons": ("reasons", "Why it was dropped, and remarks."),
}
"""Headings and meanings of columns that are neither axes nor features."""

OWN: Final = frozenset({*_VERDICT, "kept", "dropped_at", *(f"{name}_us" for name in TERMS)})
"""Columns that are no axes and no features; an axis of such a name is shown as `axis NAME`."""


def page_model(reports: Sequence[PruneReport]) -> dict[str, Any]:
    """Make the data of the page: `{"columns", "usual", "terms", "reports": [...]}`."""
    usual = [*_VERDICT, *(column.place for column in COLUMNS)]
    return {
        "columns": _described(),
        "usual": [_page_name(name) for name in usual if name not in ("score", "reasons")],
        "terms": TERMS,
        "reports": [
            _report(report, label) for report, label in zip(reports, _labels(reports), strict=True)
        ],
    }


def _described() -> dict[str, tuple[str, str, str]]:
    """Return heading, meaning and group of each column that is no axis."""
    headings = {column.place: column.heading for column in COLUMNS}
    described = {name: (*words, "verdict") for name, words in _VERDICT.items()}
    for feature in FEATURES.values():
        name, unit = _page_name(feature.name), feature.unit.replace("B", "KiB", 1)
        told = "" if unit == "1" else f" Unit: {unit}."
        heading = headings.get(feature.name, name)
        described[name] = (heading, feature.meaning + told, feature.group)
    for name, meaning in TERMS.items():
        part = f"Part of the predicted time that goes to {meaning}; the parts sum to it."
        described[f"{name}_us"] = (f"{name} us", part, "predicted time")
    return described


def _page_name(name: str) -> str:
    """Return a column's name on the page, whose bytes are in KiB."""
    return name.removesuffix("_bytes") + "_kib" if _is_bytes(name) else name


def _is_bytes(name: str) -> bool:
    return name in FEATURES and FEATURES[name].unit == "B"


def _labels(reports: Sequence[PruneReport]) -> list[str]:
    names = [report.target for report in reports]
    return [
        name if names.count(name) == 1 else f"{name} " + " ".join(map(str, report.shape.values()))
        for name, report in zip(names, reports, strict=True)
    ]


def _report(report: PruneReport, label: str) -> dict[str, Any]:
    axes, columns = _axes(report.verdicts)
    rows = [_row(verdict) for verdict in report.verdicts]
    names = dict.fromkeys(name for row in rows for name in row)
    # A config's own num_warps is not overwritten by the feature of that name.
    known = {name for verdict in report.verdicts for name in verdict.config.to_dict()} - OWN
    known |= {name for name in names if name.startswith("config.")}
    for name in (name for name in names if name not in known):
        columns[_page_name(name)] = [_value(row.get(name), name) for row in rows]
    return {
        "kernel": report.kernel,
        "target": report.target,
        "label": label,
        "scorer": report.scorer,
        "headline": headline(report),
        "guesses": [note for note in report.notes if is_guess(note)],
        "notes": [*worth(report), *(note for note in report.notes if not is_guess(note))],
        "configs": [triton_config(verdict.config) for verdict in report.verdicts],
        "kept": len(report.kept),
        "funnel": dropped_rows(report),
        "axes": axes,
        "columns": columns,
        "failures": {
            str(row): v.failure.detail.strip()
            for row, v in enumerate(report.verdicts)
            if v.failure is not None
        },
    }


def _row(verdict: Verdict) -> dict[str, Any]:
    """Return what CSV has of a verdict, with its fate in a word and the terms of its time."""
    row = verdict.row()
    first = verdict.reasons[0].rule if verdict.reasons else "-"
    fate = "kept" if verdict.kept else f"{verdict.dropped_at}: {first}"
    row |= {"kept": int(verdict.kept), "fate": fate, "reasons": " ".join(row["reasons"].split())}
    return row | {f"{name}_us": us for name, us in (verdict.terms_us or {}).items()}


def _axes(verdicts: Sequence[Verdict]) -> tuple[list[str], dict[str, list[Any]]]:
    configs = [verdict.config.to_dict() for verdict in verdicts]
    names = dict.fromkeys(name for config in configs for name in config)
    columns = {
        f"axis {name}" if name in OWN else name: [_value(config.get(name)) for config in configs]
        for name in names
    }
    return list(columns), columns


def _value(value: Any, name: str = "") -> Any:
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int | float) and _is_bytes(name):
        value = value / 1024
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return int(value) if value.is_integer() else float(f"{value:.7g}")
    return value if value is None or isinstance(value, int | str) else str(value)


MODULES: Final = (
    "dom", "virtual", "data", "rows", "state", "csv", "filters", "funnel", "table", "config",
    "main",
)  # fmt: skip
"""Modules of the page's script, each after those that it imports."""

_IMPORT: Final = re.compile(r'^import \{[^}]*\} from "\./\w+\.js";\n', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=const|function|class|async)", re.MULTILINE)
_SLOT: Final = re.compile(r"@(\w+)@")


def report_html(reports: Sequence[PruneReport]) -> str:
    """Write reports of one kernel, at least one, as one self-contained page."""
    first = reports[0]
    script = page_script()
    names = ", ".join(dict.fromkeys(report.target for report in reports))
    return _filled(
        _static("page.html").rstrip("\n"),
        {
            "policy": _policy(script),
            "title": html.escape(f"{first.kernel} on {names}: asmtune prune report"),
            "kernel": html.escape(first.kernel),
            "problem": html.escape(f"{heading(first.shape)} {dtype_words(first.dtypes)}"),
            "made": html.escape(" ".join(f"{k} {v}" for k, v in first.versions.items())),
            "style": _filled(_static("style.css"), {"dark": _static("dark.css")}),
            "report": packed(page_model(reports)),
            "script": script,
        },
    )


def page_script() -> str:
    """Join the modules to one script.

    Modules are JavaScript's own, so that they can be read and checked one by one; in one
    function they see each other without import and export.
    """
    modules = [_EXPORT.sub("", _IMPORT.sub("", _static(f"{name}.js"))) for name in MODULES]
    return "(() => {\n" + '"use strict";\n' + "\n".join(modules) + "})();"


def _policy(script: str) -> str:
    """Write the page's policy: it runs its one script, and loads nothing."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def packed(value: Any) -> str:
    """Pack a JSON value as text for `unpack` in data.js."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    # Lone surrogates, which a name may hold, are no UTF-8.
    data = text.encode("utf-8", "replace")
    return base64.b64encode(zlib.compress(data, 9)).decode("ascii")


def _filled(text: str, parts: Mapping[str, str]) -> str:
    """Fill the slots of a text in one pass: what is put in is not looked at."""
    return _SLOT.sub(lambda match: parts.get(match[1], match[0]), text)


def _static(name: str) -> str:
    return resources.files(__package__).joinpath("static", name).read_text("utf-8")
