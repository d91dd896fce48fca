"""`asmtune check`: judges a bench run against a baseline, for people and for CI."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from asmtune.base.errors import InputError
from asmtune.cli.output import check_destinations, write_result

SLOWER: Final = 1
INCOMPARABLE: Final = 3

_FORMATS: Final = ("text", "markdown", "json")


Run = Annotated[Path, typer.Argument(help="A run that asmtune bench has written.")]
Baseline = Annotated[Path, typer.Option(help="The run that it is compared with.")]
Threshold = Annotated[str, typer.Option(help='Slowdown that counts, such as "3%".')]
Level = Annotated[
    str, typer.Option(help="Chance that a check of unchanged kernels finds one slower.")
]
AnyBoard = Annotated[bool, typer.Option("--any-board", help="Compare two boards of one GPU model.")]
Format = Annotated[str, typer.Option("--format", help="text, markdown or json.")]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="A file to write instead of stdout.")
]


def check(
    run: Run,
    baseline: Baseline,
    threshold: Threshold = "3%",
    level: Level = "1%",
    any_board: AnyBoard = False,
    format_: Format = "text",
    output: Output = None,
) -> None:
    """Compare a bench run with a baseline: which kernels have become slower.

    Exits with 0 where none has, 1 where one is slower or fails, 2 for bad input, and 3 where
    nothing could be judged: another GPU, driver or board, or too few processes.
    """
    limit, chance = share_of("--threshold", threshold), share_of("--level", level)
    if format_ not in _FORMATS:
        raise InputError(f"--format {format_!r}: one of {', '.join(_FORMATS)}")
    if output is not None:
        check_destinations([("--output", output)], {"the run": run, "--baseline": baseline})
    from asmtune.workshop.regression.api import check as run_check
    from asmtune.workshop.regression.run import read_run

    base = read_run(baseline, "--baseline")
    result = run_check(read_run(run), base, threshold=limit, level=chance, any_board=any_board)
    from asmtune.workshop.regression.check_page import check_json, check_markdown, check_table

    forms = {"text": check_table, "markdown": check_markdown, "json": check_json}
    write_result(forms[format_](result), output)
    codes = {"slower": SLOWER, "incomparable": INCOMPARABLE}
    if code := codes.get(result.outcome):
        raise typer.Exit(code)


def share_of(option: str, text: str) -> float:
    """Read a share such as "3%" or "0.03"."""
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise InputError(f'{option} {text!r}: expected a share such as "3%" or 0.03') from None
