"""`asmtune check`: judges a bench run against a baseline, for people and for CI."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from asmtune.base.errors import InputError
from asmtune.cli.output import check_destinations, write_result

if TYPE_CHECKING:
    from asmtune.studies.regression.findings import Check, Terms

SLOWER: Final = 1
INCOMPARABLE: Final = 3

_FORMATS: Final = ("text", "markdown", "json")
_HISTORY: Final = "history"


Run = Annotated[Path, typer.Argument(help="A run that asmtune bench has written.")]
Baseline = Annotated[Path, typer.Option(help="The run that it is compared with.")]
Threshold = Annotated[
    str, typer.Option(help='Slowdown that counts: "3%", or "history": its mean + 3 sd.')
]
Level = Annotated[
    str, typer.Option(help="Chance that a check of unchanged kernels finds one slower.")
]
History = Annotated[Path | None, typer.Option(help="A file of earlier runs, a JSON line each.")]
Record = Annotated[
    bool, typer.Option("--record", help="Add this run to the history; 100 are kept.")
]
AnyBoard = Annotated[bool, typer.Option("--any-board", help="Compare two boards of one GPU model.")]
Format = Annotated[str, typer.Option("--format", help="text, markdown or json.")]
Figure = Annotated[
    Path | None,
    typer.Option(help="Draw this run and the history of its GPU and driver: .svg, .png or .pdf."),
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="A file to write instead of stdout.")
]


def check(
    run: Run,
    baseline: Baseline,
    threshold: Threshold = "3%",
    level: Level = "1%",
    history: History = None,
    record: Record = False,
    any_board: AnyBoard = False,
    format_: Format = "text",
    figure: Figure = None,
    output: Output = None,
) -> None:
    """Compare a bench run with a baseline: which kernels have become slower.

    Exits with 0 where none has, 1 where one is slower or fails, 2 for bad input, and 3 where
    nothing could be judged: another GPU, driver or board, or too few processes.
    """
    terms = _terms(threshold, level, any_board=any_board)
    if format_ not in _FORMATS:
        raise InputError(f"--format {format_!r}: one of {', '.join(_FORMATS)}")
    if history is None and (record or terms.threshold is None):
        wanted = "--record" if record else "--threshold history"
        raise InputError(f"{wanted} needs --history FILE")
    kept = Kept(history, record, figure)
    _check_files(run, baseline, kept, output)
    found = _found(run, baseline, terms, kept)
    write_result(_rendered(found, format_), output)
    codes = {"slower": SLOWER, "incomparable": INCOMPARABLE}
    if found.outcome in codes:
        raise typer.Exit(codes[found.outcome])


@dataclass(frozen=True)
class Kept:
    """The history and its figure, as asked for."""

    history: Path | None
    record: bool
    figure: Path | None


def _check_files(run: Path, baseline: Path, kept: Kept, output: Path | None) -> None:
    """Nothing is written where not all can be."""
    read, history = {"the run": run, "--baseline": baseline}, kept.history
    named = {"--output": output, "--figure": kept.figure}
    if history is not None and kept.record:
        named["--history"] = history
    elif history is not None:
        read["--history"] = history
    check_destinations([(o, path) for o, path in named.items() if path is not None], read)


def _found(run: Path, baseline: Path, terms: Terms, kept: Kept) -> Check:
    """Reads everything, compares, and only then writes what is kept."""
    from asmtune.report.trend import check_figure, trend_figure
    from asmtune.studies.regression.compare import compare
    from asmtune.studies.regression.files import read_run, write_bytes
    from asmtune.studies.regression.history import comparable, entry_of, read_history, record

    figure = kept.figure
    if figure is not None:
        check_figure(figure)
    base, now = read_run(baseline, "--baseline"), read_run(run)
    known = () if kept.history is None else read_history(kept.history)
    found = compare(base, now, terms, known)
    if figure is not None:
        slower = [f.subject.identity for f in found.findings if f.verdict == "slower"]
        write_bytes(
            figure,
            trend_figure([*comparable(known, now), entry_of(now)], slower, figure.suffix.lower()),
        )
    if kept.history is not None and kept.record:
        record(kept.history, now)
    return found


def _terms(threshold: str, level: str, *, any_board: bool) -> Terms:
    from asmtune.studies.regression.findings import Terms

    limit = None if threshold == _HISTORY else _share("--threshold", threshold, most=10.0)
    return Terms(limit, _share("--level", level, most=0.5), any_board)


def _share(option: str, text: str, most: float) -> float:
    """A number such as "3%" or "0.03", above 0."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 < value <= most:
        other = ', or "history"' if option == "--threshold" else ""
        raise InputError(
            f'{option} {text!r}: expected a share such as "3%" or 0.03, above 0 and up to '
            f"{100 * most:g}%{other}"
        )
    return value


def _rendered(found: Check, form: str) -> object:
    from asmtune.report.regression import check_json, check_markdown, check_table

    return {"text": check_table, "markdown": check_markdown, "json": check_json}[form](found)
