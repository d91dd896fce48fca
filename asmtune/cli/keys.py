"""`asmtune keys suggest`: rules of buckets for the keys that a program met."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from asmtune.base.errors import InputError
from asmtune.base.settings import Settings
from asmtune.cli.output import check_destinations, print_line, write_result
from asmtune.report.cells import ReportTable, plain_table
from asmtune.store.trace.reader import read_trace
from asmtune.store.trace.run import find_run, names_run

if TYPE_CHECKING:
    from asmtune.core.records.tuned import TuneRecord
    from asmtune.studies.key_rules import ArgumentReport, SharedLoss

app: Final = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

_HEADINGS: Final = (
    "kernel",
    "argument",
    "values",
    "winners",
    "one key loses",
    "rule",
    "keys",
    "loses",
    "timed",
)


@app.command("suggest")
def suggest(
    run: Annotated[
        str | None,
        typer.Argument(help="A file of `asmtune run --record`, a run's id, or the whole store."),
    ] = None,
    kernel: Annotated[str | None, typer.Option(help="Of this kernel alone.")] = None,
    loss: Annotated[
        float, typer.Option(help="Share of the speed that a rule may lose at any key.")
    ] = 0.02,
    output: Annotated[
        Path | None, typer.Option(help="A file for the rules, for `asmtune run --buckets`.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """Show which arguments made keys whose winners did not differ, and rules that share them.

    What is lost if keys share a config is read off the stored timings: each key with the winner
    of each other one of its bucket. The rules of all lines hold together.
    """
    if not 0 <= loss < 1:
        raise InputError(f"--loss: {loss:g} is no share from 0 to 1; 0.02 allows 2%")
    check_destinations([("--output", output)] if output else [])
    records = _records(run, kernel)
    from asmtune.studies.key_rules import suggested_rules

    reports = suggested_rules(records, loss)
    rules = [str(report.rule) for report in reports if report.rule is not None]
    if output is not None:
        write_result("\n".join(["# asmtune keys suggest", *rules]), output)
    if json_:
        print_line(json.dumps([_as_json(report) for report in reports], indent=1))
        return
    if reports:
        write_result(_table(reports))
    print_line(_summary(len(records), rules, loss))


def _records(run: str | None, kernel: str | None) -> list[TuneRecord]:
    """Return the stored records that a command is about.

    Raises:
        InputError: there is none; says what to do.
    """
    from asmtune.store.safe_store import existing_store

    settings = Settings.from_environment()
    wanted = None
    if run is not None and names_run(run):
        key = read_trace(find_run(settings.runs_dir, run)).header.key
        kernel = kernel or key.kernel
    elif run is not None:
        from asmtune.runtime.recording.key_file import device_free, read_key_file

        wanted = {key.digest for key in read_key_file(Path(run)).keys}
    store = existing_store(settings)
    records = [
        record
        for record in (store.records() if store is not None else ())
        if kernel is None or f".{record.key.kernel}".endswith(f".{kernel}")
        if wanted is None or device_free(record.key) in wanted
    ]
    if not records:
        where = "the store" if run is None else run
        of = "" if kernel is None else f" of kernel {kernel}"
        raise InputError(
            f"keys suggest: no tuned key{of} of {where} is in the store {settings.store_where}; "
            "tune them first, with `asmtune run` or `asmtune tune --from`"
        )
    return records


def _table(reports: Sequence[ArgumentReport]) -> ReportTable:
    table = plain_table("arguments of keys", _HEADINGS)
    for report in reports:
        keys, loss, timed = "", "", ""
        if report.loss is not None:
            keys = f"{report.keys} -> {report.loss.keys}"
            loss, timed = _loss(report.loss), f"{report.loss.known}/{report.loss.pairs}"
        table.add_row(
            report.kernel,
            report.argument,
            str(report.values),
            str(report.winners),
            _loss(report.all_values),
            "-" if report.rule is None else str(report.rule.bucket),
            keys,
            loss,
            timed,
        )
    return table


def _loss(loss: SharedLoss) -> str:
    if not loss.known:
        return "not timed" if loss.pairs else "nothing"
    return f"{loss.mean:.1%}, worst {loss.worst:.1%}"


def _as_json(report: ArgumentReport) -> dict[str, Any]:
    rule = None if report.rule is None else str(report.rule)
    return asdict(report) | {"rule": rule}


def _summary(count: int, rules: Sequence[str], limit: float) -> str:
    keys = f"{count} tuned key{'' if count == 1 else 's'}"
    if not rules:
        return f"{keys}: no rule saves a key within a loss of {limit:.1%}"
    given = " ".join(f"--bucket '{rule}'" for rule in rules)
    return f"{keys}; asmtune run {given} PROGRAM"
