"""A config's explanation in a terminal: verdict, bottleneck, numbers, hottest loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from asmtune.base.text import amount
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.verdicts import Verdict
from asmtune.ir.asm.amdgcn import AmdgpuResources
from asmtune.ir.asm.nvptx import Group as OpGroup
from asmtune.ir.asm.nvptx import group_of
from asmtune.predict.features.catalog import FEATURES, ConfigReading
from asmtune.predict.score.roofline import rounded_terms
from asmtune.predict.why.findings import Explanation
from asmtune.report.cells import ReportTable, changes, number, plain_table
from asmtune.report.code import CodeLine, CodeView
from asmtune.report.explain.record import (
    TERMS,
    Comparison,
    Explained,
    suggestion_words,
)

STYLES: Final = {
    OpGroup.TENSOR: "green",
    OpGroup.COPY: "cyan",
    OpGroup.SHARED: "blue",
    OpGroup.GLOBAL: "magenta",
    OpGroup.BARRIER: "yellow",
    OpGroup.BRANCH: "bright_black",
    OpGroup.SPILL: "red",
    OpGroup.OTHER: "",
}
"""Colours of a terminal, by group."""


def hot_loop(view: CodeView) -> RenderableType:
    """Tabulate the hottest loop, each line with its source line and class."""
    notes = [Text(note, "yellow") for note in view.notes]
    if view.hot is None:
        return Group(Text("It has no loop."), *notes)
    hot = view.hot
    title = f"Hottest loop in {view.language}: depth {hot.depth}, {hot.instructions} instructions"
    title += "" if hot.times is None else f", {hot.times:,.4g} trips a program"
    lines = [line for line in view.lines if line.hot]
    files = [view.files[index] for index in _files(lines) if index in view.files]
    if files:
        title += f"; lines of {', '.join(PurePath(name).name for name in files)}"
    width = max(len(_source(line, lines)) for line in lines)
    # A terminal breaks lines at spaces, and a wgmma lists a hundred registers without one.
    codes = (line.text.replace(",%", ", %") for line in lines)
    sources = (f"{_source(line, lines):>{width}}" for line in lines)
    texts = (f"{source}  {code}" for source, code in zip(sources, codes, strict=True))
    shown = [Text(text, _style(line)) for text, line in zip(texts, lines, strict=True)]
    return Group(Text(title, "italic"), *notes, *shown)


def _files(lines: list[CodeLine]) -> list[int]:
    return list(dict.fromkeys(line.source[0] for line in lines if line.source is not None))


def _source(line: CodeLine, lines: list[CodeLine]) -> str:
    """Format a source line as `44`; with a dot for the second file, `.263`."""
    if line.source is None:
        return ""
    return "." * _files(lines).index(line.source[0]) + str(line.source[1])


def _style(line: CodeLine) -> str:
    return "bold" if line.kind is None else STYLES[group_of(line.kind)]


def explanation(explained: Explained) -> Group:
    """Lay out everything that `asmtune explain` says."""
    verdict, scorer = explained.verdict, explained.report.scorer
    ranked = sum(v.rank is not None for v in explained.report.verdicts)
    place = f"rank {verdict.rank} of {ranked} by {scorer}" if verdict.rank else "not ranked"
    head = Text.assemble(
        (str(verdict.config), "bold"),
        f"\non {explained.report.target}: ",
        (_fate_words(verdict), "bold"),
        f", {place}",
    )
    parts: list[RenderableType] = [head]
    parts += _fate(explained)
    if verdict.predicted_us is not None:
        parts += _prediction(explained)
    if explained.why is not None:
        parts += why_lines(explained.why)
    if explained.comparison is not None:
        parts += _comparison(verdict, explained.comparison, scorer)
    if explained.reading is not None:
        parts.append(_resources(explained.reading))
    parts += _code(explained)
    return Group(*parts)


def _fate_words(verdict: Verdict) -> str:
    return "kept" if verdict.kept else f"dropped at {verdict.dropped_at}"


def _fate(explained: Explained) -> Iterator[Text]:
    verdict = explained.verdict
    if verdict.failure is not None and verdict.dropped_at == "compile":
        # Its reason is the first line of the failure.
        yield Text(f"  does not compile: {verdict.failure}")
        yield from (Text(f"  {line}", "dim") for line in verdict.failure.detail.splitlines()[1:])
    else:
        yield from (Text(f"  {reason}") for reason in verdict.reasons)
    if (last := explained.last_kept) is not None:
        times = f"predicted {number(verdict.predicted_us)} us"
        yield Text(f"  {times}; the last kept, rank {last.rank}, {number(last.predicted_us)} us")
    if (runs := explained.instead) is not None:
        yield Text(f"  the nearest that runs: {_named(verdict, runs)}")


def _named(own: Verdict, other: Verdict) -> str:
    """Format another config as `num_stages 3 -> 4 (36.2 us, -10%; rank 4)`."""
    return f"{changes(own.config, other.config)} ({_gain(own, other)})"


def _gain(own: Verdict, other: Verdict) -> str:
    text = f"{number(other.predicted_us)} us"
    if own.predicted_us and other.predicted_us and own.dropped_at not in ("rules", "compile"):
        text += f", {other.predicted_us / own.predicted_us - 1:+.0%}"
    return f"{text}; rank {other.rank}"


def _prediction(explained: Explained) -> Iterator[RenderableType]:
    verdict, bottleneck = explained.verdict, explained.verdict.bottleneck or ""
    begins = "predicted" if explained.runs else "could it run, predicted"
    terms = rounded_terms(verdict.terms_us or {}, verdict.predicted_us or 0.0, 1)
    text = f", which takes {number(terms[bottleneck])} us of them" if terms else ""
    yield Text.assemble(
        f"{begins} {number(verdict.predicted_us)} us, limited by ", (bottleneck, "bold"), text
    )
    if terms:
        yield _terms_table(terms, verdict.predicted_us or 0.0)
    yield from (Text(f"  a guess: {guess}", "yellow") for guess in explained.guesses)
    if explained.runs and explained.searched and not explained.suggestions:
        yield Text("  nothing to try: no config here is predicted to be faster")
    for word, suggestion in zip(("try: ", "or:  "), explained.suggestions, strict=False):
        named = suggestion_words(verdict, suggestion)
        yield Text(f"  {word}{named} ({_gain(verdict, suggestion.verdict)})")


def why_lines(why: Explanation) -> Iterator[Text]:
    """Lay out accesses by line and findings; what is empty is left out."""
    if why.failure:
        yield Text(f"why it takes its time cannot be said: {why.failure}", "yellow")
    if why.accesses:
        yield Text("Memory accesses by line", "italic")
    yield from (Text(f"  {access}") for access in why.accesses)
    if why.findings:
        yield Text("Why it takes this long", "italic")
    for finding in why.findings:
        yield Text.assemble("  ", (finding.kind, "bold"), f": {finding.text}")


def _terms_table(terms: Mapping[str, float], total_us: float) -> ReportTable:
    """Tabulate the terms of a predicted time, largest first, and their sum."""
    table = plain_table("Predicted time", ("limit", "", "us", "share"), left=2)
    for name, us in terms.items():
        if us:
            table.add_row(name, TERMS.get(name, ""), number(us), f"{us / total_us:.0%}")
    table.add_section()
    table.add_row("all", "their sum is the prediction", number(total_us), "")
    return table


def _comparison(own: Verdict, comparison: Comparison, scorer: str) -> Iterator[RenderableType]:
    other = comparison.other
    rank = f", rank {other.rank}" if other.rank else f", {_fate_words(other)}"
    yield Text.assemble("\nagainst ", (f"{other.config}", "bold"), f": {comparison.other_is}{rank}")
    yield Text(f"  differs in: {changes(own.config, other.config)}")
    if not comparison.terms:
        lacking = own if own.features is None else other
        why = lacking.reasons[0] if lacking.reasons else _fate_words(lacking)
        whose = "this one" if lacking is own else "the other"
        yield Text(f"  no times to compare: {whose} was not compiled ({why})")
        return
    yield Text(f"  predicted {_times(own.predicted_us or 0.0, other.predicted_us or 0.0)}")
    if scorer != "roofline" and own.score is not None and other.score is not None:
        yield Text(f"  score by {scorer} {own.score:.3f} against {other.score:.3f}")
    for term in comparison.telling:
        both = f"{term.own:.1f} against {term.other:.1f}"
        yield Text(f"  {term.difference:+.1f} us {term.meaning} ({both})")
    if not comparison.telling:
        yield Text("  no part of the predicted times differs by 1%: the model sees them as equal")
    if comparison.features:
        table = plain_table("What differs", ("", "this", "the other"))
        for pair in comparison.features:
            table.add_row(pair.meaning, amount(pair.own, pair.unit), amount(pair.other, pair.unit))
        yield table


def _times(own: float, other: float) -> str:
    """Format as `52.1 us against 40.3 us: 11.8 us slower (29%)`."""
    text = f"{number(own)} us against {number(other)} us"
    if round(own, 1) == round(other, 1):
        return f"{text}: as fast"
    word = "slower" if own > other else "faster"
    return f"{text}: {abs(own - other):.1f} us {word} ({abs(own / other - 1):.0%})"


def _resources(reading: ConfigReading) -> ReportTable:
    table = plain_table("Resources", ("",), left=0)
    table.add_column("", left=True)
    for feature in FEATURES.values():
        if feature.group in ("resources", "occupancy"):
            table.add_row(amount(feature.read(reading), feature.unit), feature.meaning)
    resources = reading.resources
    if isinstance(resources, AmdgpuResources):
        table.add_row(f"{resources.agprs}", "AGPRs among a thread's registers; the rest are VGPRs.")
        table.add_row(f"{resources.sgprs}", "SGPRs of a wavefront.")
    table.add_row(reading.occupancy.limiter, "What allows no further program on an SM.")
    return table


def _code(explained: Explained) -> Iterator[RenderableType]:
    code = explained.code
    if isinstance(code, Failure):
        yield Text(f"its code cannot be shown: {code}", "yellow")
    elif code is not None:
        yield hot_loop(code)
