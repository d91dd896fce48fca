"""Reports as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from rich.console import Group
from rich.text import Text

from asmtune.core.config import Config, varying
from asmtune.core.hardware.shipped import match_device
from asmtune.core.records.verdicts import PruneReport, Selection, Verdict
from asmtune.predict.prune.flow import A_GUESS
from asmtune.report.cells import (
    Column,
    ReportTable,
    dtype_words,
    heading,
    kib,
    number,
    one_line,
    plain_table,
    rows_table,
    words,
)


def _whole(value: float | None) -> str:
    return number(value, 0)


def _known(value: float | None) -> str:
    return "" if value is None else number(value)


COLUMNS: Final = (
    Column("regs", "regs_per_thread", _whole),
    Column("spills", "spill_words", _whole),
    Column("shared KiB", "shared_bytes", kib),
    Column("prog/SM", "programs_per_sm", _whole),
    Column("occ", "occupancy", lambda value: number(value, 2)),
    Column("tensor", "tensor_hot", _whole),
    Column("cp.async", "async_copy_hot", _whole),
    Column("bar", "barrier_hot", _whole),
    Column("instr", "instructions_hot", _whole),
)
"""Features that the table of kept configs and the page show, the most important first."""

TIME: Final = Column("pred us", "predicted_us", _known, meaning="Microseconds by the roofline.")


def prune_table(reports: Sequence[PruneReport]) -> Group:
    """Tabulate the kept configs target by target, the answer in a line first; then what fell."""
    first = reports[0]
    title = Text.assemble(
        (one_line(first.kernel), "bold"), f" {heading(first.shape)} {dtype_words(first.dtypes)}"
    )
    answers = [Text(headline(report), "bold") for report in reports]
    told = [(f"{report.target}: {note}", note) for report in reports for note in report.notes]
    guesses = [Text(one_line(text), "yellow") for text, note in told if is_guess(note)]
    notes = [Text(one_line(text), "yellow") for text, note in told if not is_guess(note)]
    hot = (
        "pred us and limit: the roofline's time and what takes most of it. "
        "tensor, cp.async, bar and instr count the hot loop once, "
        f"as the {_assembly(reports)} has it."
    )
    lines = [Text(line) for report in reports for line in worth(report)]
    kept = [_kept_table(report, reports) for report in reports]
    table = _funnel_table(reports)
    return Group(title, *answers, *guesses, *kept, Text(hot, "dim"), table, *lines, *notes)


def is_guess(note: str) -> bool:
    """Return whether a note says that something was guessed: then nothing is certain."""
    return note.startswith(A_GUESS)


def headline(report: PruneReport) -> str:
    """Say in one line what to time, and what is expected of the best of it."""
    count = report.counts()["candidates"]
    best = next((verdict for verdict in report.kept if verdict.rank == 1), None)
    if best is None:
        return f"{report.target}: time these {len(report.kept)} of {count:,}"
    axes = varying([verdict.config for verdict in report.verdicts])
    values = best.config.values()
    named = words({a: values[a] for a in axes if values.get(a) is not None}) or str(best.config)
    limit = best.bottleneck or ""
    if best.terms_us and best.predicted_us and limit in best.terms_us:
        limit += f" {best.terms_us[limit] / best.predicted_us:.0%}"
    guess = f"{named}: {number(best.predicted_us)} us, {limit}"
    if count == 1:
        return f"{report.target}: one candidate, so that there is nothing to choose: {guess}"
    return f"{report.target}: time these {len(report.kept)} of {count:,}; best guess {guess}"


def _assembly(reports: Sequence[PruneReport]) -> str:
    """Name the assembly that counts are of."""
    machines = [match_device(report.target) for report in reports]
    names = ["AMDGCN" if m is not None and m.backend == "hip" else "PTX" for m in machines]
    return " or ".join(dict.fromkeys(names))


def worth(report: PruneReport) -> Iterator[str]:
    """Say how far the candidates came, and what the compiled and the kept configs are worth."""
    yield f"{report.target}: {report.summary()}"
    if report.compiled is not None:
        told = f"compile {report.compiled.keep}: {report.compiled.ranks} by rank before compiling"
        counts = report.counts()
        told += f", {counts['sketched_only']} sketched only"
        if left := counts.get("estimated_only"):
            told += f", {left:,} ranked by others' sketches only"
        yield f"{report.target}: {told}; {_expected(report, report.compiled, '')}"
    if report.selection is not None:
        selection = report.selection
        more = len(report.kept) - selection.ranks
        text = f"{report.target}: keep {selection.keep}: {selection.ranks} by rank"
        why = "the default" if report.stored is None else "the default, the stored config"
        text += f", {more} more as {why}" if more else ""
        of = "" if report.compiled is None else " that was compiled"
        yield f"{text}; {_expected(report, selection, of)}"
    if report.stored is not None:
        yield f"{report.target}: stored {report.stored.config}: {_fate(report, report.stored)}"


def _fate(report: PruneReport, stored: Verdict) -> str:
    """Say why the record's config cannot run, or its rank and its time beside the first's."""
    if not stored.kept:
        return f"dropped, {stored.reasons[0]}"
    first, own = number(report.verdicts[0].predicted_us), number(stored.predicted_us)
    ranks = sum(verdict.rank is not None for verdict in report.verdicts)
    return f"rank {stored.rank} of {ranks}, predicted us {own}, of the first {first}"


def _expected(report: PruneReport, selection: Selection, of: str) -> str:
    if any(map(is_guess, report.notes)) or report.counts()["candidates"] == 1:
        return "no error is promised: the report rests on a guess, or has one candidate"
    if selection.expected_share is None or selection.chance_dropped is None:
        when = " before compiling" if selection is report.compiled else ""
        return f"the error of {report.scorer}{when} was never measured"
    measured = f"\n  measured with {selection.source}" if selection.source else ""
    low = "" if selection.low_share is None else f" (9 in 10: {selection.low_share:.2f} or more)"
    return (
        f"expected share of the best speed{of} {selection.expected_share:.3f}{low}, "
        f"chance that the best is dropped {selection.chance_dropped:.0%}"
        f"{selection.caveat}{measured}"
    )


def _funnel_table(reports: Sequence[PruneReport]) -> ReportTable:
    headings = ("stage", "reason", *(report.target for report in reports))
    table = plain_table("Dropped configs by stage", headings, left=2)
    table.add_row("space", "candidates", *(str(r.counts()["candidates"]) for r in reports))
    fallen = [report.dropped() for report in reports]
    for stage, reason in dict.fromkeys(key for tally in fallen for key in tally):
        counts = (tally.get((stage, reason), 0) for tally in fallen)
        table.add_row(stage, reason, *(f"-{count}" if count else "" for count in counts))
    table.add_row("kept", f"by {reports[0].scorer}", *(str(len(r.kept)) for r in reports))
    return table


def _kept_table(report: PruneReport, among: Sequence[PruneReport]) -> ReportTable:
    """Tabulate the configs that a target keeps, then those of others; see how they fare here."""
    kept = [verdict.config for one in (report, *among) for verdict in one.kept]
    stored = [one.stored.config for one in among if one.stored is not None]
    verdicts = {verdict.config: verdict for verdict in report.verdicts}
    rows = [
        _row(config, verdicts.get(config)) | {"record": "stored" if config in stored else ""}
        for config in dict.fromkeys([*kept, *stored])
    ]
    axes = varying([verdict.config for one in among for verdict in one.verdicts])
    columns = [Column("record", "record", left=True)] if stored else []
    columns += [Column(axis, axis) for axis in axes]
    columns += [Column("rank", "place"), *_terms(report), TIME]
    columns += [Column("limit", "bottleneck", lambda name: name or "", left=True), *COLUMNS]
    title = "Kept, best first" if len(among) == 1 else f"Kept on {report.target}, best first"
    spare = [column.heading for column in reversed(COLUMNS)]
    return rows_table(title, rows, columns, spare=spare)


def _terms(report: PruneReport) -> list[Column]:
    """Return columns of a score that is a sum of points, and of its terms by feature."""
    names = dict.fromkeys(name for verdict in report.kept for name in verdict.points or ())
    terms = [
        Column(f"{name.removeprefix('text_')} pts", f"{name}_points", _known) for name in names
    ]
    return [Column("score", "score", _known), *terms] if terms else []


def _row(config: Config, verdict: Verdict | None) -> dict[str, Any]:
    """Return a verdict's row with its rank, in brackets if it is not kept, or why it has none."""
    if verdict is not None and verdict.features is not None:
        rank = f"{verdict.rank}" if verdict.kept else f"({verdict.rank or '-'})"
        return verdict.row() | {"place": rank}
    if verdict is None:
        return {**config.to_dict(), "place": "-"}
    stages = {"sketch": "sketched only", "estimate": "not sketched"}
    reason = verdict.reasons[0].rule if verdict.reasons else "-"
    place = stages.get(verdict.dropped_at or "", reason)
    return verdict.row() | {"place": place, "predicted_us": None, "bottleneck": None}
