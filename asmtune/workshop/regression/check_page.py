"""A check as a table, Markdown and JSON; a bench run as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from asmtune.base.json_codec import to_json
from asmtune.measure.timing.race import unsteady
from asmtune.report.cells import count, number, one_line, plain_table, share, words
from asmtune.report.documents import document_text
from asmtune.workshop.regression.compare import VERDICTS, Check, CheckFinding
from asmtune.workshop.regression.run import POLICY, BenchRun, TimedSubject

CHECK_FORMAT: Final = "asmtune-check"

_HEADINGS: Final = (
    *("kernel", "shape", "dtype", "verdict"),
    *("before us", "now us", "change", "limit us", "p90 us", "p99 us", "RSD"),
)
_LEFT: Final = 4
"""Columns of text, before those of numbers."""

_COLOURS: Final = {
    "slower": "red",
    "failed": "red",
    "faster": "green",
    "gone": "yellow",
    "not judged": "yellow",
}


def check_table(check: Check) -> Group:
    """Tabulate every row, the gravest first, then the remarks."""
    title = f"{check.run} against {check.base}"
    table = plain_table(title, _HEADINGS, left=_LEFT, spare=("limit us", "p90 us", "p99 us", "RSD"))
    for finding in ordered(check.findings):
        table.add_row(*_cells(finding), style=_COLOURS.get(finding.verdict))
    lines: list[RenderableType] = [Text(line) for line in _lines(check)]
    return Group(table, *lines)


def check_markdown(check: Check) -> str:
    """Write Markdown for a pull request: a sentence, the rows that matter, the others folded."""
    loud = [f for f in ordered(check.findings) if f.verdict != "unchanged"]
    quiet = [f for f in ordered(check.findings) if f.verdict == "unchanged"]
    parts = [f"### {_sentence(check)}"]
    if check.obstacles:
        parts.append("\n".join(f"- {_plain(text)}" for text in check.obstacles))
    if loud:
        parts.append(_markdown_table(loud))
    if quiet:
        parts += [
            f"<details><summary>{len(quiet)} unchanged</summary>",
            _markdown_table(quiet),
            "</details>",
        ]
    remarks = [f"Run {_plain(check.run)} against {_plain(check.base)}; {check.terms.words}."]
    parts.append("\n".join([*remarks, *(f"- {_plain(text)}" for text in check.remarks)]))
    return "\n\n".join(parts)


def check_json(check: Check) -> str:
    """Write the check as JSON, with its outcome, the counts and each row's ratio."""
    findings = [to_json(finding) | {"ratio": finding.ratio} for finding in ordered(check.findings)]
    document = {**to_json(check), "findings": findings}
    return document_text(
        CHECK_FORMAT, {"outcome": check.outcome, "counts": check.counts, **document}
    )


def ordered(findings: Sequence[CheckFinding]) -> list[CheckFinding]:
    """Sort findings by verdict, the greatest change first."""
    return sorted(findings, key=lambda f: (VERDICTS.index(f.verdict), -abs((f.ratio or 1) - 1)))


def _sentence(check: Check) -> str:
    heads = {"fine": "No slowdown", "slower": "Slowdown", "incomparable": "Not comparable"}
    counts = ", ".join(f"{count} {verdict}" for verdict, count in check.counts.items())
    return f"{heads[check.outcome]}: {counts}"


def _lines(check: Check) -> Iterator[str]:
    for finding in ordered(check.findings):
        if finding.remark and not check.obstacles:
            yield f"{_name(finding)}: {one_line(finding.remark)}"
    yield from (f"differs: {one_line(text)}" for text in check.remarks)
    yield from (f"not comparable: {one_line(text)}" for text in check.obstacles)
    yield f"{_sentence(check)} ({check.terms.words})"


def _name(finding: CheckFinding) -> str:
    subject = finding.subject
    return f"{one_line(subject.kernel)} {words(subject.shape)} {one_line(subject.dtype)}"


def _cells(finding: CheckFinding) -> tuple[str, ...]:
    subject = finding.subject
    now = finding.run_statistics
    return (
        one_line(subject.kernel),
        words(subject.shape),
        one_line(subject.dtype),
        finding.verdict,
        number(finding.base_us, 2),
        number(finding.run_us, 2),
        "-" if finding.ratio is None else f"{100 * (finding.ratio - 1):+.1f}%",
        number(finding.limit_us, 2),
        number(now.p90_us if now else None, 2),
        number(now.p99_us if now else None, 2),
        share(now.rsd if now else None),
    )


def _markdown_table(findings: Sequence[CheckFinding]) -> str:
    heads = (*_HEADINGS, "remark")
    rows = [(*_cells(finding), one_line(finding.remark)) for finding in findings]
    lines = [
        "| " + " | ".join(heads) + " |",
        "|" + "---|" * _LEFT + "---:|" * (len(_HEADINGS) - _LEFT) + "---|",
    ]
    lines += ["| " + " | ".join(map(_plain, row)) + " |" for row in rows]
    return "\n".join(lines)


def _plain(text: str) -> str:
    escaped = one_line(text).replace("&", "&amp;").replace("<", "&lt;")
    for sign in "\\|`*_[]~$#":
        escaped = escaped.replace(sign, f"\\{sign}")
    return escaped


_BENCH_HEADINGS: Final = (
    *("kernel", "shape", "dtype"),
    *("p50 us", "p90 us", "p99 us", "RSD", "samples", "GOPS", "GB/s"),
)


def bench_table(run: BenchRun) -> Group:
    """Tabulate every row with its statistics and rates, then name the rows that are not steady."""
    spare = ("p90 us", "GB/s", "samples", "p99 us")
    table = plain_table("Times and rates", _BENCH_HEADINGS, left=3, spare=spare)
    doubts = []
    for row in run.rows:
        subject, found = row.subject, row.statistics
        table.add_row(
            one_line(subject.kernel),
            words(subject.shape),
            one_line(subject.dtype),
            *(number(us, 2) for us in (found.p50_us, found.p90_us, found.p99_us)),
            share(found.rsd),
            count(found.samples),
            *rates(row),
        )
        if remark := unsteady(found, POLICY):
            doubts.append(f"{one_line(subject.kernel)} {words(subject.shape)}: {remark}")
    return Group(table, *(Text(line, "yellow") for line in doubts))


def rates(row: TimedSubject) -> tuple[str, str]:
    """Format billions of operations and of bytes a second."""
    load, us = row.load, row.statistics.p50_us
    if load is None:
        return "-", "-"
    return number(load.flops / us / 1e3 if load.flops else None), number(load.bytes / us / 1e3)
