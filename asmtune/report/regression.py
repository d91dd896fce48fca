"""A check of a bench run as a table, Markdown, JSON and a figure of its history."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from asmtune.base.errors import InputError
from asmtune.base.json_codec import to_json
from asmtune.report.cells import number, one_line, plain_table, words
from asmtune.report.documents import document_text
from asmtune.studies.regression.compare import VERDICTS, Check, CheckFinding
from asmtune.studies.regression.history import HistoryEntry, Level

CHECK_FORMAT: Final = "asmtune-check"

_HEADINGS: Final = (
    *("kernel", "shape", "dtype", "verdict"),
    *("before us", "now us", "change", "limit us"),
)
_COLOURS: Final = {"slower": "red", "failed": "red", "faster": "green", "not judged": "yellow"}


def check_table(check: Check) -> Group:
    """Tabulates every row, the gravest first, then the remarks."""
    title = f"{check.run} against {check.base}"
    table = plain_table(title, _HEADINGS, left=4, spare=("limit us",))
    for finding in ordered(check.findings):
        table.add_row(*_cells(finding), style=_COLOURS.get(finding.verdict))
    lines: list[RenderableType] = [Text(line) for line in _lines(check)]
    return Group(table, *lines)


def check_markdown(check: Check) -> str:
    """Writes Markdown for a pull request: a sentence, the rows that matter, the others folded."""
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
    """Writes the check as JSON, with its outcome, the counts and each row's ratio."""
    findings = [to_json(finding) | {"ratio": finding.ratio} for finding in ordered(check.findings)]
    document = {**to_json(check), "findings": findings}
    return document_text(
        CHECK_FORMAT, {"outcome": check.outcome, "counts": check.counts, **document}
    )


def ordered(findings: Sequence[CheckFinding]) -> list[CheckFinding]:
    """Sorts findings by verdict, the greatest change first."""
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
    escaped = one_line(text).replace("&", "&amp;").replace("<", "&lt;")
    for sign in "\\|`*_[]~$#":
        escaped = escaped.replace(sign, f"\\{sign}")
    return escaped


SUFFIXES: Final = (".svg", ".png", ".pdf")

_COLUMNS: Final = 3
_NAMED: Final = 8
"""Lines of a panel that have a name each; more would hide the panel."""

_LABELS: Final = 6

_NOISE: Final = 0.03
"""Least span of a panel, either way: the usual threshold, so that noise looks like noise."""


def check_figure(path: Path) -> None:
    """Makes sure that a figure can be drawn and is wanted in a form that there is.

    Raises:
        InputError: the name ends in something else, or matplotlib is not installed.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"--figure {path}: a figure ends in one of {', '.join(SUFFIXES)}")
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise InputError(
            "--figure needs matplotlib: pip install '.[figures]' in a clone of asmtune"
        ) from error


def trend_figure(history: Sequence[HistoryEntry], slower: Sequence[str], form: str) -> bytes:
    """Draws a panel a kernel: the times of each shape and dtype against their median.

    A band spans the medians of the processes; a ring marks the subjects that the last run is
    `slower` in, by identity. Runs stand oldest first; `form` is one of `SUFFIXES`.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    panels = _panels(history)
    columns = min(_COLUMNS, len(panels))
    rows = math.ceil(len(panels) / columns)
    # Equal histories make equal files.
    style: dict[Any, Any] = {"svg.hashsalt": "asmtune", "pdf.fonttype": 42, "font.size": 8}
    # No name is read as mathematics, and a sign that the font lacks is a box.
    style["text.parse_math"] = False
    with mpl.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ ")
        figure = Figure(figsize=(4.2 * columns, 2.6 * rows), layout="constrained")
        axes = list(figure.subplots(rows, columns, squeeze=False).flat)
        for axis, (kernel, lines) in zip(axes, sorted(panels.items()), strict=False):
            _draw(axis, kernel, lines, set(slower))
            _name_runs(axis, history)
        for axis in axes[len(panels) :]:
            axis.set_visible(False)
        gpus = dict.fromkeys(one_line(entry.environment.gpu) for entry in history)
        runs = f"{len(history)} runs" if len(history) > 1 else "1 run"
        figure.suptitle(f"time against the median of {runs}, {', '.join(gpus)}")
        out = io.BytesIO()
        empty: dict[str, Any] = {".png": {"Software": None}, ".pdf": {"CreationDate": None}}
        metadata = empty.get(form, {"Date": None})
        figure.savefig(out, format=form.lstrip("."), dpi=150, metadata=metadata)
    return out.getvalue()


Line = list[tuple[int, Level]]


def _panels(history: Sequence[HistoryEntry]) -> dict[str, dict[str, Line]]:
    """Groups levels with the numbers of their runs, by kernel and identity."""
    panels: dict[str, dict[str, Line]] = {}
    for place, entry in enumerate(history):
        for level in entry.levels:
            subject = level.subject
            lines = panels.setdefault(subject.kernel, {})
            lines.setdefault(subject.identity, []).append((place, level))
    return panels


def _draw(axis: Any, kernel: str, lines: Mapping[str, Line], slower: set[str]) -> None:
    for identity, line in lines.items():
        usual = median(level.median_us for _, level in line)
        at = [place for place, _ in line]
        heights = [level.median_us / usual for _, level in line]
        subject = line[-1][1].subject
        label = f"{words(subject.shape)} {one_line(subject.dtype)}, {usual:.3g} us"
        (drawn,) = axis.plot(at, heights, marker=".", markersize=4, linewidth=1, label=label)
        low = [level.low_us / usual for _, level in line]
        high = [level.high_us / usual for _, level in line]
        axis.fill_between(at, low, high, color=drawn.get_color(), alpha=0.15, linewidth=0)
        if identity in slower:
            axis.plot(at[-1:], heights[-1:], "o", color="red", fillstyle="none", markersize=9)
    axis.axhline(1.0, color="black", linewidth=0.6, linestyle="--", zorder=0)
    axis.set_title(one_line(kernel), loc="left")
    axis.spines[["top", "right"]].set_visible(False)
    axis.margins(y=0.15)
    least, most = axis.get_ylim()
    axis.set_ylim(min(least, 1 - _NOISE), max(most, 1 + _NOISE))
    axis.yaxis.set_major_formatter(lambda value, _: f"{100 * (value - 1):+.3g}%")
    if len(lines) <= _NAMED:
        axis.legend(frameon=False, fontsize=6)


def _name_runs(axis: Any, history: Sequence[HistoryEntry]) -> None:
    step = max(1, math.ceil(len(history) / _LABELS))
    at = list(range(0, len(history), step))
    names = [one_line(history[n].label or history[n].date)[:10] for n in at]
    axis.set_xticks(at, names, rotation=30)
    axis.set_xlim(-0.5, len(history) - 0.5)
