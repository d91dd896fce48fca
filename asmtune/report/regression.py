"""What a check of a bench run found: a table, Markdown for a pull request, and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from asmtune.base.json_codec import to_json
from asmtune.report.cells import number, one_line, plain_table, words
from asmtune.report.documents import document_text
from asmtune.studies.regression.findings import VERDICTS, Check, CheckFinding

CHECK_FORMAT: Final = "asmtune-check"

_HEADINGS: Final = (
    "kernel",
    "shape",
    "dtype",
    "verdict",
    "before us",
    "now us",
    "change",
    "limit us",
)
_COLOURS: Final = {"slower": "red", "failed": "red", "faster": "green", "not judged": "yellow"}
_QUIET: Final = ("unchanged",)


def check_table(check: Check) -> Group:
    """Every row, the gravest first, then what a reader must know."""
    table = plain_table(f"{one_line(check.run)} against {one_line(check.base)}", _HEADINGS, left=4)
    for finding in ordered(check.findings):
        table.add_row(*_cells(finding), style=_COLOURS.get(finding.verdict))
    lines: list[RenderableType] = [Text(line) for line in _lines(check)]
    return Group(table, *lines)


def check_markdown(check: Check) -> str:
    """For a pull request: the sentence, the rows that matter, the others folded away."""
    loud = [f for f in ordered(check.findings) if f.verdict not in _QUIET]
    quiet = [f for f in ordered(check.findings) if f.verdict in _QUIET]
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
    said = [f"Run {_plain(check.run)} against {_plain(check.base)}; {check.terms.words}."]
    parts.append("\n".join([*said, *(f"- {_plain(text)}" for text in check.remarks)]))
    return "\n\n".join(parts)


def check_json(check: Check) -> str:
    """The check as it is, with its outcome, the counts and each row's ratio."""
    findings = [to_json(finding) | {"ratio": finding.ratio} for finding in ordered(check.findings)]
    document = {**to_json(check), "findings": findings}
    return document_text(
        CHECK_FORMAT, {"outcome": check.outcome, "counts": check.counts, **document}
    )


def ordered(findings: Sequence[CheckFinding]) -> list[CheckFinding]:
    """By verdict, and the greatest change first."""
    return sorted(findings, key=lambda f: (VERDICTS.index(f.verdict), -abs((f.ratio or 1) - 1)))


def _sentence(check: Check) -> str:
    """`Slower: 1 slower, 11 unchanged`."""
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
    return (
        one_line(subject.kernel),
        words(subject.shape),
        one_line(subject.dtype),
        finding.verdict,
        number(finding.base_us, 2),
        number(finding.run_us, 2),
        "-" if finding.ratio is None else f"{100 * (finding.ratio - 1):+.1f}%",
        number(finding.limit_us, 2),
    )


def _markdown_table(findings: Sequence[CheckFinding]) -> str:
    heads = (*_HEADINGS, "remark")
    rows = [(*_cells(finding), one_line(finding.remark)) for finding in findings]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * 4 + "---:|" * 4 + "---|"]
    lines += ["| " + " | ".join(map(_plain, row)) + " |" for row in rows]
    return "\n".join(lines)


def _plain(text: str) -> str:
    """Text of a file as Markdown shows it: nothing in it is markup."""
    escaped = one_line(text).replace("&", "&amp;").replace("<", "&lt;")
    for sign in "\\|`*_[]~$#":
        escaped = escaped.replace(sign, f"\\{sign}")
    return escaped
