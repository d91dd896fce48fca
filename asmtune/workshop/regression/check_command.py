"""`asmtune check`: judges a bench run against a baseline, for people and for CI."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from asmtune.base.errors import InputError
from asmtune.cli.output import check_destinations, write_result
from asmtune.workshop.regression.api import MOST_LEVEL, MOST_THRESHOLD

if TYPE_CHECKING:
    from asmtune.workshop.regression.compare import Check, CheckFinding
    from asmtune.workshop.regression.history import HistoryEntry

SLOWER: Final = 1
INCOMPARABLE: Final = 3

_FORMATS: Final = ("text", "markdown", "json")
_HISTORY: Final[Literal["history"]] = "history"


Run = Annotated[Path, typer.Argument(help="A run that asmtune bench has written.")]
Baseline = Annotated[Path, typer.Option(help="The run that it is compared with.")]
Threshold = Annotated[
    str, typer.Option(help='Slowdown that counts: "3%", or "history": beyond its runs.')
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
    limit = (
        _HISTORY if threshold == _HISTORY else share_of("--threshold", threshold, MOST_THRESHOLD)
    )
    chance = share_of("--level", level, MOST_LEVEL)
    check_format(format_)
    if history is None and (record or threshold == _HISTORY):
        option = "--record" if record else "--threshold history"
        raise InputError(f"{option} needs --history FILE")
    files = CheckFiles(run, baseline, history, record, figure, output)
    files.check()
    result = files.compared(limit, chance, any_board=any_board)
    write_result(rendered(result, format_), output)
    end(result)


def end(result: Check[Any]) -> None:
    """Exit with the code of a check's outcome, unless it is fine."""
    codes = {"slower": SLOWER, "worse": SLOWER, "incomparable": INCOMPARABLE}
    if code := codes.get(result.outcome):
        raise typer.Exit(code)


@dataclass(frozen=True)
class CheckFiles:
    """The files that a check reads and writes, as given on the command line."""

    run: Path
    baseline: Path
    history: Path | None
    record: bool
    figure: Path | None
    output: Path | None

    def check(self) -> None:
        """Make sure that all files can be written before any is.

        Raises:
            InputError: one cannot be, or is another's.
        """
        from asmtune.workshop.regression.check_page import check_figure

        read = {"the run": self.run, "--baseline": self.baseline}
        written = {"--output": self.output, "--figure": self.figure}
        if self.history is not None:
            (written if self.record else read)["--history"] = self.history
        wanted = [(option, path) for option, path in written.items() if path is not None]
        check_destinations(wanted, read)
        if self.figure is not None:
            check_figure(self.figure)

    def compared(
        self, threshold: float | Literal["history"], level: float, *, any_board: bool
    ) -> Check[CheckFinding]:
        """Read everything, compare, and only then write figure and history."""
        from asmtune.workshop.regression.api import check as run_check
        from asmtune.workshop.regression.history import comparable, entry_of, read_history
        from asmtune.workshop.regression.run import read_run

        base, run = read_run(self.baseline, "--baseline"), read_run(self.run)
        terms: dict[str, Any] = {"threshold": threshold, "level": level, "any_board": any_board}
        result = run_check(run, base, history=self.history, **terms)
        known = () if self.history is None else read_history(self.history)
        entry = entry_of(run)
        history = self.history if self.record else None
        keep(result, [*comparable(known, entry), entry], self.figure, history)
        return result


def keep(
    result: Check[Any], entries: Sequence[HistoryEntry], figure: Path | None, history: Path | None
) -> None:
    """Draw runs, of which the last was checked, and add that one to a history."""
    from asmtune.workshop.regression.check_page import trend_figure
    from asmtune.workshop.regression.history import record
    from asmtune.workshop.regression.run import write_bytes

    if figure is not None:
        worse = [f.identity for f in result.findings if f.verdict in ("slower", "worse")]
        write_bytes(figure, trend_figure(entries, worse, figure.suffix.lower()))
    if history is not None:
        record(history, entries[-1], result.outcome)


def share_of(option: str, text: str, most: float) -> float:
    """Read a share such as "3%" or "0.03", above 0."""
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


def check_format(form: str) -> None:
    """Make sure that a form of the result is known.

    Raises:
        InputError: it is not.
    """
    if form not in _FORMATS:
        raise InputError(f"--format {form!r}: one of {', '.join(_FORMATS)}")


def rendered(result: Check[Any], form: str) -> object:
    """Write a check as text, Markdown or JSON."""
    from asmtune.workshop.regression.check_page import check_json, check_markdown, check_table

    return {"text": check_table, "markdown": check_markdown, "json": check_json}[form](result)
