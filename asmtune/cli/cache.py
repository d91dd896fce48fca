"""`asmtune cache`: lists, shows, exports, imports, checks and clears tuned configs."""

from __future__ import annotations

import json
import string
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from asmtune import store as stores
from asmtune.errors import InputError
from asmtune.records import TuneRecord
from asmtune.settings import Settings
from asmtune.store import codec, interchange
from asmtune.store.lookup import DIGITS_SHOWN

app = typer.Typer(
    name="cache",
    help="Tuned configs and their timings: the user's store and what comes with asmtune.",
    no_args_is_help=True,
)

Kernel = Annotated[str | None, typer.Option(help="Only this kernel, as `ls` names it.")]
Device = Annotated[str | None, typer.Option(help='Only this device, such as "NVIDIA H200".')]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


@app.command("ls")
def list_records(kernel: Kernel = None, device: Device = None, as_json: AsJson = False) -> None:
    """Lists every tuned config: the user's first, then the shipped."""
    with _existing() as store:
        own = store.records(kernel, device) if store else []
    shipped = [
        record
        for record in stores.shipped_records()
        if kernel in (None, record.key.kernel) and device in (None, record.key.device)
    ]
    rows = [_summary("store", record) for record in own]
    rows += [_summary("shipped", record) for record in shipped]
    if as_json:
        _print_json(rows)
        return
    _print_table(rows)
    if not rows:
        typer.echo(f"no tuned config in {_store_path()} or shipped", err=True)


@app.command()
def show(
    key_prefix: Annotated[str, typer.Argument(metavar="KEYPREFIX", help="Digits of `ls`'s key.")],
    as_json: AsJson = False,
) -> None:
    """Shows one record with every timing, fastest first, and where it comes from."""
    layer, record = _one(key_prefix)
    if as_json:
        value = {"key_digest": codec.key_digest(record.key), "layer": layer}
        _print_json(value | codec.record_to_json(record))
        return
    facts = _summary(layer, record) | vars(record.provenance)
    for name, value in facts.items():
        typer.echo(f"{name:10} {_cell(value)}")
    typer.echo("")
    _print_table(
        [
            {
                "config": timing.config.to_dict(),
                "median_us": timing.median_us,
                "p20_us": timing.p20_us,
                "p80_us": timing.p80_us,
                "samples": len(timing.samples_us),
            }
            for timing in sorted(record.measurements, key=lambda timing: timing.median_us)
        ]
    )
    for config, failure in record.failures:
        typer.echo(f"failed     {_cell(str(config))}: {_cell(str(failure))}")


@app.command("export")
def export_records(
    file: Annotated[Path, typer.Argument(help="JSON file to write; replaced if it exists.")],
    kernel: Kernel = None,
    device: Device = None,
    samples: Annotated[bool, typer.Option("--samples", help="Keep every sample.")] = False,
    as_json: AsJson = False,
) -> None:
    """Writes records of the user's store in the form of `cache/`."""
    with _existing() as store:
        records = store.records(kernel, device) if store else []
    if not records:
        raise InputError(
            f"store {_store_path()}: no record of kernel {kernel or '(any)'} on device "
            f"{device or '(any)'}; `asmtune cache ls` lists them"
        )
    interchange.write(file, records, samples=samples)
    _print_count("exported", len(records), as_json, f"records to {file}")


@app.command("import")
def import_records(
    file: Annotated[Path, typer.Argument(help="JSON file that `export` has written.")],
    as_json: AsJson = False,
) -> None:
    """Adds a file's records to the user's store, in place of those of the same key."""
    records = interchange.read(file)
    with stores.Store.open(_store_path()) as store:
        count = store.save_all(records)
    _print_count("imported", count, as_json, f"records from {file}")


@app.command()
def verify(as_json: AsJson = False) -> None:
    """Checks the store and the shipped files; exits with 1 where anything is wrong."""
    with _existing() as store:
        findings = store.verify() if store else []
    try:
        stores.shipped_records()
    except InputError as error:
        findings.append(stores.Finding("shipped", str(error)))
    if as_json:
        _print_json([{"place": finding.place, "problem": finding.problem} for finding in findings])
    else:
        for finding in findings:
            typer.echo(_cell(str(finding)))
        typer.echo(f"{len(findings)} problems in {_store_path()} and the shipped files", err=True)
    if findings:
        raise typer.Exit(1)


@app.command()
def clear(
    kernel: Kernel = None,
    device: Device = None,
    yes: Annotated[bool, typer.Option("--yes", help="Really delete.")] = False,
    as_json: AsJson = False,
) -> None:
    """Deletes records of the user's store, with their timings."""
    if not yes:
        raise InputError(
            f"store {_store_path()}: would delete the records of kernel {kernel or '(any)'} on "
            f"device {device or '(any)'}; pass --yes to do so"
        )
    with _existing() as store:
        count = store.clear(kernel, device) if store else 0
    _print_count("cleared", count, as_json, f"records from {_store_path()}")


@contextmanager
def _existing() -> Iterator[stores.Store | None]:
    """The user's store, opened only where there is one: reading makes no file."""
    path = _store_path()
    if not stores.store_exists(path):
        yield None
        return
    with stores.Store.open(path) as store:
        yield store


def _store_path() -> Path:
    return Settings.from_environment().store_path


def _one(prefix: str) -> tuple[str, TuneRecord]:
    digits = prefix.lower()
    if not digits or set(digits) - set(string.hexdigits):
        raise InputError(f"key {prefix!r}: expected hex digits, as `asmtune cache ls` shows them")
    with _existing() as store:
        found = [("store", record) for record in (store.by_digest(digits) if store else [])]
    found += [
        ("shipped", record)
        for record in stores.shipped_records()
        if codec.key_digest(record.key).startswith(digits)
    ]
    keys = {codec.key_digest(record.key) for _, record in found}
    if len(keys) != 1:
        raise InputError(
            f"key {prefix}: {len(keys) or 'no'} records start so; "
            f"{'give more digits' if keys else '`asmtune cache ls` lists them'}"
        )
    return found[0]


def _summary(layer: str, record: TuneRecord) -> dict[str, Any]:
    return {
        "key": codec.key_digest(record.key)[:DIGITS_SHOWN],
        "layer": layer,
        "kernel": record.key.kernel,
        "shape": dict(record.key.shape),
        "dtypes": dict(record.key.dtypes),
        "device": record.key.device,
        "winner": record.winner.to_dict(),
        "median_us": record.median_us,
        "date": record.provenance.date,
    }


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=1))


def _print_count(verb: str, count: int, as_json: bool, rest: str) -> None:
    if as_json:
        _print_json({verb: count})
    else:
        typer.echo(f"{verb} {count} {rest}")


def _print_table(rows: list[dict[str, Any]]) -> None:
    """A table on a terminal; lines with tabs, header first, in a pipe."""
    if not rows:
        return
    cells = [[_cell(value) for value in row.values()] for row in rows]
    console = Console()
    if console.is_terminal:
        table = Table(*rows[0])
        for line in cells:
            table.add_row(*(Text(cell) for cell in line))
        console.print(table)
        return
    for line in [list(rows[0]), *cells]:
        typer.echo("\t".join(line))


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(_cell(f"{name}={item}") for name, item in value.items())
    if isinstance(value, float):
        return f"{value:.3f}"
    text = "-" if value is None else str(value)
    # What a file brought in must not reach the terminal as control codes.
    return codec.printable(text)
