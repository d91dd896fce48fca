"""The report explorer: prune reports as one HTML page that opens from disk.

    reports ──model──▶ columns ─┐
    artifacts ──code──▶ texts ──┼──page──▶ HTML
    timings ──timings──▶ µs ────┘

The page holds all it needs: data deflated in base64, scripts and styles inline, and a policy
that forbids the network. `static/` is what it is made of, `static/vendor/` what others wrote.
"""

from __future__ import annotations

from asmtune.report.explorer.code import CarriedCode, CodeMaker, carried_code, no_code
from asmtune.report.explorer.page import report_html
from asmtune.report.explorer.timings import Launch, Timed, Timings, read_timings

__all__ = [
    "CarriedCode",
    "CodeMaker",
    "Launch",
    "Timed",
    "Timings",
    "carried_code",
    "no_code",
    "read_timings",
    "report_html",
]
