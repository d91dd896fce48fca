"""A check of a bench run as a table, Markdown, JSON and a figure of its history."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from asmtune.base.errors import InputError
from asmtune.base.json_codec import to_json
from asmtune.report.cells import number, one_line, plain_table, share, words
from asmtune.report.documents import document_text
from asmtune.report.figures import COLOURS, INK, MARKERS, RULE, WIDTH, fitted_legend, look, saved
from asmtune.workshop.regression.compare import VERDICTS, Check, CheckFinding
from asmtune.workshop.regression.history import HistoryEntry, Level

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHECK_FORMAT: Final = "asmtune-check"

_HEADINGS: Final = (
    *("kernel", "shape", "dtype", "verdict"),
    *("before us", "now us", "change", "limit us", "p90 us", "p99 us", "RSD"),
)
_ERROR_HEADINGS: Final = (
    *("kernel", "shape", "dtype", "verdict", "variant", "metric", "trend"),
    *("mean before", "now", "change", "limit"),
)
_BARS: Final = 20
_COLOURS: Final = {
    "slower": "red",
    "worse": "red",
    "failed": "red",
    "faster": "green",
    "gone": "yellow",
    "not judged": "yellow",
}


def check_table(check: Check[Any]) -> Group:
    """Tabulate every row, the gravest first, then the remarks."""
    title = f"{check.run} against {check.base}"
    heads, left = _headings(check.findings)
    table = plain_table(
        title, heads, left=left, spare=("trend", "limit us", "p90 us", "p99 us", "RSD")
    )
    for finding in ordered(check.findings):
        table.add_row(*_cells(finding), style=_COLOURS.get(finding.verdict))
    lines: list[RenderableType] = [Text(line) for line in _lines(check)]
    return Group(table, *lines)


def check_markdown(check: Check[Any]) -> str:
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


def check_json(check: Check[Any]) -> str:
    """Write the check as JSON, with its outcome, the counts and each row's ratio."""
    findings = [to_json(finding) | {"ratio": finding.ratio} for finding in ordered(check.findings)]
    document = {**to_json(check), "findings": findings}
    return document_text(
        CHECK_FORMAT, {"outcome": check.outcome, "counts": check.counts, **document}
    )


def ordered(findings: Sequence[Any]) -> list[Any]:
    """Sort findings by verdict, the greatest change first."""
    return sorted(findings, key=lambda f: (VERDICTS.index(f.verdict), -abs((f.ratio or 1) - 1)))


def _sentence(check: Check[Any]) -> str:
    heads = {"fine": "No slowdown", "slower": "Slowdown", "incomparable": "Not comparable"}
    if _headings(check.findings)[0] is _ERROR_HEADINGS:
        heads = {"fine": "No larger error", "incomparable": "No limits yet"}
    heads["worse"] = "Larger error"
    counts = ", ".join(f"{count} {verdict}" for verdict, count in check.counts.items())
    return f"{heads[check.outcome]}: {counts}"


def _lines(check: Check[Any]) -> Iterator[str]:
    for finding in ordered(check.findings):
        if finding.remark and not check.obstacles:
            yield f"{_name(finding)}: {one_line(finding.remark)}"
    yield from (f"differs: {one_line(text)}" for text in check.remarks)
    yield from (f"not comparable: {one_line(text)}" for text in check.obstacles)
    yield f"{_sentence(check)} ({check.terms.words})"


def _name(finding: Any) -> str:
    subject = finding.subject
    named = f"{one_line(subject.kernel)} {words(subject.shape)} {one_line(subject.dtype)}"
    return f"{named} {finding.metric}" if subject.variant is not None else named


def _headings(findings: Sequence[Any]) -> tuple[tuple[str, ...], int]:
    """Return the columns of times or of errors, and how many of them hold text."""
    timed = not findings or isinstance(findings[0], CheckFinding)
    return (_HEADINGS, 4) if timed else (_ERROR_HEADINGS, 7)


def _cells(finding: Any) -> tuple[str, ...]:
    subject = finding.subject
    first = (one_line(subject.kernel), words(subject.shape), one_line(subject.dtype))
    if not isinstance(finding, CheckFinding):
        numbers = (finding.usual, finding.value, finding.ratio, finding.limit)
        texts = ["-" if value is None else f"{value:.3g}" for value in numbers]
        texts[2] = "-" if finding.ratio is None else f"{100 * (finding.ratio - 1):+.1f}%"
        named = (finding.verdict, one_line(subject.variant or ""), finding.metric)
        values = [*finding.earlier, *([] if finding.value is None else [finding.value])]
        return (*first, *named, _bars(values), *texts)
    now = finding.run_statistics
    return (
        *first,
        finding.verdict,
        number(finding.base_us, 2),
        number(finding.run_us, 2),
        "-" if finding.ratio is None else f"{100 * (finding.ratio - 1):+.1f}%",
        number(finding.limit_us, 2),
        number(now.p90_us if now else None, 2),
        number(now.p99_us if now else None, 2),
        share(now.rsd if now else None),
    )


def _bars(values: Sequence[float]) -> str:
    """Draw values by up to 20 bars, each the largest of as many runs one after another."""
    if not values:
        return ""
    size = math.ceil(len(values) / _BARS)
    tops = [max(values[at : at + size]) for at in range(0, len(values), size)]
    low, high = min(tops), max(tops)
    steps = [round(7 * ((top - low) / (high - low or 1.0))) for top in tops]
    return "".join(chr(ord("▁") + step) for step in steps)


def _markdown_table(findings: Sequence[Any]) -> str:
    columns, left = _headings(findings)
    heads = (*columns, "remark")
    rows = [(*_cells(finding), one_line(finding.remark)) for finding in findings]
    lines = [
        "| " + " | ".join(heads) + " |",
        "|" + "---|" * left + "---:|" * (len(columns) - left) + "---|",
    ]
    lines += ["| " + " | ".join(map(_plain, row)) + " |" for row in rows]
    return "\n".join(lines)


def _plain(text: str) -> str:
    escaped = one_line(text).replace("&", "&amp;").replace("<", "&lt;")
    for sign in "\\|`*_[]~$#":
        escaped = escaped.replace(sign, f"\\{sign}")
    return escaped


SUFFIXES: Final = (".svg", ".png", ".pdf")

_COLUMNS: Final = 2
_NAMED: Final = 8
"""Lines of a panel that have a name each; more would take more room than the panel."""

_LETTERS: Final = 32
"""Letters of a line of a panel's legend."""

_NOISE: Final = 0.03
"""Least span of a panel, either way: the usual threshold, so that noise looks like noise."""


def check_figure(path: Path, option: str = "--figure") -> None:
    """Make sure that a figure can be drawn and is wanted in a form that there is.

    Raises:
        InputError: the name ends in something else, or matplotlib is not installed.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{option} {path}: a figure ends in one of {', '.join(SUFFIXES)}")
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"{option} needs matplotlib: pip install '.[figures]' in a clone of asmtune"
        ) from error


def trend_figure(history: Sequence[HistoryEntry], slower: Sequence[str], form: str) -> bytes:
    """Draw a panel a kernel: the times of each shape and dtype against their median.

    A band spans the medians of the processes; a ring marks the subjects that the last run is
    `slower` in, by identity. Runs stand oldest first; `form` is one of `SUFFIXES`.
    """
    # Names have any letters, and an SVG's reader any font: outlines look alike everywhere.
    with look(text=False):
        return saved(trend(history, slower), form.lstrip("."))


def trend(history: Sequence[HistoryEntry], slower: Sequence[str]) -> Figure:
    """Draw the figure; within `look`."""
    from matplotlib.figure import Figure

    panels = sorted(_panels(history).items())
    rows = [panels[at : at + _COLUMNS] for at in range(0, len(panels), _COLUMNS)]
    heads = [max(_head(kernel, lines) for kernel, lines in row) for row in rows]
    across, up = 72 * WIDTH, _TOP + sum(heads) + (_PANEL + _BELOW) * len(rows) + _BOTTOM
    figure = Figure(figsize=(WIDTH, up / 72))
    top = up - _TOP
    for row, head in zip(rows, heads, strict=True):
        top -= head + _PANEL
        for column, (kernel, lines) in enumerate(row):
            left = column * across / _COLUMNS
            width = across / _COLUMNS - _LEFT - _RIGHT
            edges = ((left + _LEFT) / across, top / up, width / across, _PANEL / up)
            axis = figure.add_axes(edges)
            _draw(axis, lines, set(slower))
            place: dict[str, Any] = {
                "bbox_to_anchor": ((left + 10) / across, (top + _PANEL + 4) / up)
            }
            place |= {"title": _wrapped(_title(kernel, lines)), "alignment": "left"}
            handles, _ = axis.get_legend_handles_labels()
            legend, _ = fitted_legend(figure, handles, 0, loc="lower left", **place)
            legend.get_title().set_fontweight("bold")
            _name_runs(axis, history, width)
        top -= _BELOW
    gpus = dict.fromkeys(one_line(entry.environment.gpu) for entry in history)
    runs = f"{len(history)} runs" if len(history) > 1 else "1 run"
    timed = any(level.metric is None for entry in history for level in entry.levels)
    title = f"{'time' if timed else 'error'} against the median of {runs}, {', '.join(gpus)}"
    style: dict[str, Any] = {"va": "top", "weight": "bold", "size": 11}
    figure.text(10 / across, 1 - 8 / up, title, **style)
    place = {"loc": "lower left", "bbox_to_anchor": (10 / across, 8 / up)}
    fitted_legend(figure, _signs(bool(slower), timed), 0, **place)
    return figure


_TOP: Final = 28.0
_BOTTOM: Final = 50.0
"""Points above all panels, for the title, and below them, for the signs."""

_PANEL: Final = 90.0
_BELOW: Final = 32.0
_LEFT: Final = 54.0
_RIGHT: Final = 16.0
"""Height of a panel, and points under it and beside it for the numbers of its axes."""


def _head(kernel: str, lines: Mapping[str, Line]) -> float:
    """Return the points above a panel that its kernel's name and its legend need."""
    named = [_wrapped(_title(kernel, lines)), *_names(lines)]
    return 11.0 + sum(11.5 * (name.count("\n") + 1) + 4.0 for name in named)


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.wrap(text, _LETTERS, max_lines=4, placeholder=" …"))


def _signs(slower: bool, timed: bool) -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    plain: dict[str, Any] = {"color": RULE, "linewidth": 1.2}
    ring: dict[str, Any] = {"marker": "o", "fillstyle": "none", "markersize": 11}
    median_of = "a run's median" if timed else "a run"
    signs: list[Any] = [Line2D([], [], **plain, marker="o", markersize=4, label=median_of)]
    if timed:
        label = "medians of the run's processes"
        signs.append(Patch(color=RULE, alpha=_BAND, linewidth=0, label=label))
    if slower:
        label = "slower in the last run than in its baseline" if timed else "beyond its limit"
        signs.append(Line2D([], [], color=INK, linestyle="none", **ring, label=label))
    return signs


Line = list[tuple[int, Level]]


def _panels(history: Sequence[HistoryEntry]) -> dict[str, dict[str, Line]]:
    """Group levels with the numbers of their runs, by kernel and identity."""
    panels: dict[str, dict[str, Line]] = {}
    for place, entry in enumerate(history):
        for level in entry.levels:
            subject = level.subject
            metric = "" if level.metric is None else f", {level.metric}"
            lines = panels.setdefault(f"{subject.kernel}{metric}", {})
            lines.setdefault(level.identity, []).append((place, level))
    return panels


def _names(lines: Mapping[str, Line]) -> list[str]:
    """Name lines by what differs in shape and dtype, and by their usual time; too many: none."""
    if len(lines) > _NAMED:
        return []
    levels = [line[-1][1] for line in lines.values()]
    subjects = [level.subject for level in levels]
    alone, dtypes = len(lines) == 1, {subject.dtype for subject in subjects}
    names = []
    for level, line in zip(levels, lines.values(), strict=True):
        subject, unit = level.subject, " us" if level.metric is None else ""
        differ = {
            name: value
            for name, value in subject.shape.items()
            if alone or any(other.shape.get(name) != value for other in subjects)
        }
        dtype = one_line(subject.dtype) if alone or len(dtypes) > 1 else ""
        parts = [f"{words(differ)} {dtype}".strip(), one_line(subject.variant or "")]
        named = ", ".join(filter(None, parts))
        names.append(_wrapped(f"{named}, {_usual(line):.3g}{unit}"))
    return names


def _title(kernel: str, lines: Mapping[str, Line]) -> str:
    """Name a kernel with the dtype that its lines share, or with the number of its lines."""
    dtypes = {line[-1][1].subject.dtype for line in lines.values()}
    about = f", {dtypes.pop()}" if len(lines) > 1 and len(dtypes) == 1 else ""
    many = f", {len(lines)} shapes" if len(lines) > _NAMED else ""
    return one_line(f"{kernel}{about}{many}")


def _usual(line: Line) -> float:
    return median(level.value for _, level in line)


def _relative(value: float, usual: float) -> float:
    """Return a value over the usual one; where that is 0, as of `clip`, 1 more than the value."""
    return value / usual if usual else 1 + value


_BAND: Final = 0.2


def _draw(axis: Any, lines: Mapping[str, Line], slower: set[str]) -> None:
    names = _names(lines)
    looks = zip(cycle(COLOURS), cycle(MARKERS), strict=False)
    for order, ((identity, line), (colour, marker)) in enumerate(
        zip(lines.items(), looks, strict=False)
    ):
        usual = _usual(line)
        at = [place for place, _ in line]
        heights = [_relative(level.value, usual) for _, level in line]
        style: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 4}
        style["label"] = names[order] if names else None
        axis.plot(at, heights, linewidth=1.2, **style)
        low = [_relative(level.low, usual) for _, level in line]
        high = [_relative(level.high, usual) for _, level in line]
        axis.fill_between(at, low, high, color=colour, alpha=_BAND, linewidth=0)
        if identity in slower:
            ring: dict[str, Any] = {"fillstyle": "none", "markersize": 11, "color": INK}
            axis.plot(at[-1:], heights[-1:], "o", **ring)
    axis.axhline(1.0, color=RULE, linewidth=0.8, linestyle="--", zorder=0)
    axis.margins(y=0.15)
    least, most = axis.get_ylim()
    axis.set_ylim(min(least, 1 - _NOISE), max(most, 1 + _NOISE))
    axis.yaxis.set_major_formatter(
        lambda value, _: f"{100 * (value - 1):+.3g}%".replace("+0%", "0%")
    )


def _name_runs(axis: Any, history: Sequence[HistoryEntry], width: float) -> None:
    """Name as many runs as fit a panel's width."""
    names = [one_line(entry.label or entry.date)[:10] for entry in history]
    most = max(1, int(width / (6.5 * max(map(len, names)) + 8)))
    at = range(0, len(history), math.ceil(len(history) / most))
    axis.set_xticks(at, [names[place] for place in at])
    axis.set_xlim(-0.5, len(history) - 0.5)
