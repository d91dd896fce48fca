"""The page: reports as columns of values, and all parts put together in one file.

A policy forbids all that the page does not hold.
"""

from __future__ import annotations

import base64
import hashlib
import html
import math
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, Final

from asmtune.base.settings import Settings
from asmtune.core.hardware.shipped import load_target
from asmtune.core.problem import Problem
from asmtune.core.records.verdicts import PruneReport, Verdict
from asmtune.predict.features.catalog import FEATURES
from asmtune.report.cells import dtype_words, words
from asmtune.report.documents import dropped_rows, triton_config
from asmtune.report.explain.record import TERMS
from asmtune.report.explorer.code import CarriedCode, CodeMaker, carried_code, no_code, packed
from asmtune.report.progress import ProgressBar
from asmtune.report.tables import headline, is_guess, worth

OWN: Final = frozenset(
    {
        "kept", "dropped_at", "reason", "reasons", "rank", "score", "predicted_us", "bottleneck",
        "measured_us", "measured_p90_us", "measured_p99_us", "measured_rsd", "ratio", "fate",
        *(f"{name}_us" for name in TERMS),
    }
)  # fmt: skip
"""Columns that are no axes and no features; an axis of such a name is shown as `axis NAME`."""


def page_model(reports: Sequence[PruneReport], code: CarriedCode) -> dict[str, Any]:
    """Make the data of the page: `{"features", "terms", "sources", "reports": [...]}`."""
    features = {f.name: [f.unit, f.group, f.meaning] for f in FEATURES.values()}
    features |= {f"{name}_us": ["us", "predicted time", _part(name)] for name in TERMS}
    return {
        "features": features,
        "terms": TERMS,
        "sources": list(code.sources),
        "reports": [
            _report(report, label) | {"code": index, "code_note": code.note}
            for report, label, index in zip(reports, _labels(reports), code.index, strict=True)
        ],
    }


def _part(term: str) -> str:
    return f"Part of the predicted time that goes to {TERMS[term]}; the parts sum to it."


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
    own = [name for name in names if name not in known]
    columns |= {name: [_value(row.get(name)) for row in rows] for name in own}
    return {
        "kernel": report.kernel,
        "target": report.target,
        "label": label,
        "scorer": report.scorer,
        "headline": headline(report),
        "guesses": [note for note in report.notes if is_guess(note)],
        "notes": [*worth(report), *(note for note in report.notes if not is_guess(note))],
        "configs": [triton_config(verdict.config) for verdict in report.verdicts],
        "measured": "measured_us" in columns,
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
    """Return what CSV has of a verdict, its first reason and the terms of its time as well."""
    row = verdict.row()
    first = verdict.reasons[0].rule if verdict.reasons else verdict.dropped_at
    more = {"kept": int(verdict.kept), "reason": first, "reasons": " ".join(row["reasons"].split())}
    if row.get("measured_rsd") is not None:
        more["measured_rsd"] = round(100 * row["measured_rsd"], 2)
    return row | more | {f"{name}_us": us for name, us in (verdict.terms_us or {}).items()}


def _axes(verdicts: Sequence[Verdict]) -> tuple[list[str], dict[str, list[Any]]]:
    configs = [verdict.config.to_dict() for verdict in verdicts]
    names = dict.fromkeys(name for config in configs for name in config)
    columns = {
        f"axis {name}" if name in OWN else name: [_value(config.get(name)) for config in configs]
        for name in names
    }
    return list(columns), columns


def _value(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return int(value) if value.is_integer() else float(f"{value:.7g}")
    return value if value is None or isinstance(value, int | str) else str(value)


MODULES: Final = (
    "dom", "virtual", "data", "rows", "state", "csv", "codes", "listing", "filters", "funnel",
    "table", "chart", "pane", "code", "compare", "main",
)  # fmt: skip
"""Modules of the page's script, each after those that it imports."""

VENDORED: Final = ("uPlot.iife.min.js", "diff.min.js")

_IMPORT: Final = re.compile(r'^import \{[^}]*\} from "\./\w+\.js";\n', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=const|function|class|async)", re.MULTILINE)
_SLOT: Final = re.compile(r"@(\w+)@")


def page_of(
    reports: Sequence[PruneReport],
    problem: Problem,
    targets: Sequence[str],
) -> str:
    """Make the page of reports that were just made, with the code of their best configs."""
    with ProgressBar() as progress:
        machines = [load_target(name) for name in targets]
        maker = CodeMaker(machines, Settings.from_environment(), progress)
        code = carried_code(reports, problem, maker)
    return report_html(reports, code)


def report_html(reports: Sequence[PruneReport], code: CarriedCode | None = None) -> str:
    """Write reports of one kernel, at least one, as one self-contained page."""
    first = reports[0]
    carried = no_code(reports) if code is None else code
    script = page_script()
    names = ", ".join(dict.fromkeys(report.target for report in reports))
    return _filled(
        _static("page.html").rstrip("\n"),
        {
            "policy": _policy(script),
            "title": html.escape(f"{first.kernel} on {names}: asmtune prune report"),
            "kernel": html.escape(first.kernel),
            "problem": html.escape(f"{words(first.shape)} {dtype_words(first.dtypes)}"),
            "made": html.escape(" ".join(f"{k} {v}" for k, v in first.versions.items())),
            "style": _style(),
            "report": packed(page_model(reports, carried)),
            "codes": '["' + '","'.join(carried.packed) + '"]' if carried.packed else "[]",
            "script": script,
        },
    )


def page_script() -> str:
    """Join the libraries and the modules to one script.

    Modules are JavaScript's own, so that they can be read and checked one by one; in one
    function they see each other without import and export.
    """
    libraries = [_static(f"vendor/{name}") for name in VENDORED]
    modules = [_EXPORT.sub("", _IMPORT.sub("", _static(f"{name}.js"))) for name in MODULES]
    script = "(() => {\n" + '"use strict";\n' + "\n".join(modules) + "})();"
    return "\n".join([*libraries, script])


def _style() -> str:
    style = _filled(_static("style.css"), {"dark": _static("dark.css")})
    return "\n".join([_static("vendor/uPlot.min.css"), style, _static("code.css")])


def _policy(script: str) -> str:
    """Write the page's policy: it runs its one script, and loads nothing.

    Styles are inline too, and libraries set some on elements.
    """
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _filled(text: str, parts: Mapping[str, str]) -> str:
    """Fill the slots of a text in one pass: what is put in is not looked at."""
    return _SLOT.sub(lambda match: parts.get(match[1], match[0]), text)


def _static(name: str) -> str:
    return resources.files(__package__).joinpath("static", *name.split("/")).read_text("utf-8")
