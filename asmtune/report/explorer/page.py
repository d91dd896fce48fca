"""The page itself: its parts put together, with a policy that forbids all else."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Final

from asmtune.base.settings import Settings
from asmtune.core.hardware.shipped import load_target
from asmtune.core.problem import Problem
from asmtune.core.records.verdicts import PruneReport
from asmtune.report.cells import dtype_words, words
from asmtune.report.explorer.code import CarriedCode, CodeMaker, carried_code, no_code, packed
from asmtune.report.explorer.model import page_model
from asmtune.report.explorer.timings import Timings
from asmtune.report.progress import ProgressBar

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
    timings: Timings | None,
) -> str:
    """Makes the page of reports that were just made, with the code of their best configs."""
    with ProgressBar() as progress:
        machines = [load_target(name) for name in targets]
        maker = CodeMaker(machines, Settings.from_environment(), progress)
        code = carried_code(reports, problem, maker)
    return report_html(reports, code, timings)


def report_html(
    reports: Sequence[PruneReport],
    code: CarriedCode | None = None,
    timings: Timings | None = None,
) -> str:
    """Writes reports of one kernel as one self-contained page.

    Args:
        reports: one a target, at least one.
        code: what the page carries of it; None for nothing.
        timings: measured times to stand beside the predicted ones, where they fit.
    """
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
            "report": packed(page_model(reports, carried, timings)),
            "codes": '["' + '","'.join(carried.packed) + '"]' if carried.packed else "[]",
            "script": script,
        },
    )


def page_script() -> str:
    """Joins the libraries and the modules to one script.

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
    """Writes the page's policy: it runs its one script, and loads nothing.

    Styles stand inline too, and libraries set some on elements.
    """
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _filled(text: str, parts: Mapping[str, str]) -> str:
    """Fills the slots of a text in one pass: what is put in is not looked at."""
    return _SLOT.sub(lambda match: parts.get(match[1], match[0]), text)


def _static(name: str) -> str:
    return resources.files(__package__).joinpath("static", *name.split("/")).read_text("utf-8")
