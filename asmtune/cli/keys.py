"""`asmtune keys`: rules of buckets for the keys that a program met, and picks for new shapes."""

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


@app.command("pick")
def pick(
    kernel: Annotated[str, typer.Argument(help="A kernel's name or a kernel module's file.")],
    shape: Annotated[list[str], typer.Option(help="Sizes: M=100,N=4096,K=4096; repeatable.")],
    dtype: Annotated[str | None, typer.Option(help="By default the kernel's first.")] = None,
    device: Annotated[
        str | None, typer.Option(help="Of records of this device alone, as the driver names it.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """Show the config that on_miss="interpolate" would launch for a shape, from the store alone.

    A stored shape shows its tuned config. Of others the expected loss is a share of the best
    speed; where it is wide, a launch goes on with the pick and tunes in the background.
    """
    from asmtune.core.inputs.shapes import shapes_of
    from asmtune.core.kernel_module import load_kernel_module
    from asmtune.studies.sweep import Sweep
    from asmtune.studies.tuning_queue import TuningQueue

    module = load_kernel_module(kernel)
    queue = TuningQueue.of(module, kernel, dtype)
    shapes = shapes_of(module, shape, None)
    (first, *_) = queue.check(shapes)
    records = _records(None, first.full_name, "pick")
    devices = dict.fromkeys(r.key.device for r in records if device in (None, r.key.device))
    if not devices:
        has = ", ".join(sorted({record.key.device for record in records}))
        raise InputError(f"--device: no record of {device!r} is in the store; it has {has}")
    from asmtune.store.safe_store import existing_store

    store = existing_store(Settings.from_environment())
    rows = [row for name in devices for row in Sweep.of(queue, name, shapes, store).rows()]
    if json_:
        print_line(json.dumps(rows, indent=1))
        return
    table = plain_table("picks", ("shape", "device", "how", "config", "expected loss"), 5)
    for row in rows:
        sizes = " ".join(f"{name}={value}" for name, value in row["shape"].items())
        config = " ".join(f"{name}={value}" for name, value in (row["config"] or {}).items())
        loss = "" if row["expected_loss"] is None else f"{row['expected_loss']:.1%}"
        loss += ", wide" if row["wide"] else ""
        table.add_row(sizes, row["device"], row["how"], config, loss or row["why"])
    write_result(table)


def _records(run: str | None, kernel: str | None, command: str = "suggest") -> list[TuneRecord]:
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
            f"keys {command}: no tuned key{of} of {where} is in the store {settings.store_where}; "
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
