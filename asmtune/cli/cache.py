"""`asmtune cache`: lists, shows, exports, imports, checks and clears tuned configs."""

from __future__ import annotations

import gc
import json
import string
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.text import Text

from asmtune.base.atomic_write import write_whole
from asmtune.base.errors import InputError, StoreError
from asmtune.base.settings import Settings
from asmtune.base.trust import UntrustedError, fault_line, trusted_file
from asmtune.cli.output import (
    cell,
    check_destinations,
    is_stdout,
    is_terminal,
    print_json_rows,
    print_line,
    print_table,
    write_result,
)
from asmtune.core.keys.parts import covers
from asmtune.core.records.tuned import TuneRecord
from asmtune.report.tables import mapping_table
from asmtune.store import interchange
from asmtune.store.codec import key_digest, record_to_json
from asmtune.store.interchange import abridged, without_samples
from asmtune.store.lookup import DIGITS_SHOWN, RecordSummary, StoreFinding
from asmtune.store.seeds import SeedFolder
from asmtune.store.shipped import shipped_records, store_exists
from asmtune.store.sqlite_file import BESIDE

if TYPE_CHECKING:
    from asmtune.store.database import Store


def record_row(layer: str, record: RecordSummary) -> dict[str, Any]:
    """Return a tuned config as `ls` and `show` give it."""
    return {
        "key": record.digest[:DIGITS_SHOWN],
        "layer": layer,
        "kernel": record.kernel,
        "shape": record.shape,
        "covers": covered(record.shape),
        "dtypes": record.dtypes,
        "device": record.device,
        "winner": record.winner,
        "median_us": record.median_us,
        "date": record.date,
        "timed": record.timed,
        "failed": record.failed,
    }


def covered(shape: Mapping[str, Any]) -> list[str]:
    """Say what the buckets and functions among a key's parts stand for."""
    texts = [covers(name, value) for name, value in shape.items()]
    return [text for text in texts if text is not None]


def print_json(value: Any) -> None:
    """Print JSON, for programs."""
    print_line(json.dumps(value, indent=1))


def print_count(verb: str, count: int, as_json: bool, rest: str, *, err: bool = False) -> None:
    """Print how many records a command has moved; to stderr where they went to stdout."""
    text = json.dumps({verb: count}, indent=1) if as_json else f"{verb} {count} {rest}"
    print_line(text, err=err)


_SPARE: Final = ("failed", "timed", "covers", "date", "dtypes", "samples", "layer")
"""Columns that a narrow terminal may lack, the least important first."""

app = typer.Typer(
    name="cache",
    help="Tuned configs and their timings: the user's store and what comes with asmtune.",
    no_args_is_help=True,
)

Kernel = Annotated[str | None, typer.Option(help="Only this kernel, as `ls` names it.")]
Device = Annotated[str | None, typer.Option(help='Only this device, such as "NVIDIA H200".')]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Where = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL|PATH",
        help="The store: a file, or a database such as postgresql://user@host/name; "
        "otherwise as ASMTUNE_STORE_URL and ASMTUNE_CACHE_DIR say.",
    ),
]


@app.command("ls")
def list_records(
    kernel: Kernel = None, device: Device = None, where: Where = None, as_json: AsJson = False
) -> None:
    """List every tuned config: the user's, unfinished runs, what is but predicted, the shipped.

    Key, config and origin of each are checked; its timings are counted, and `verify` checks them.
    """
    with _existing(where) as store:
        rows = _listed(store, kernel, device)
        if as_json:
            print_json_rows(rows)
        elif not print_table(rows, _SPARE):
            print_line(f"no tuned config in {place(where)} or shipped", err=True)


def _listed(
    store: Store | None, kernel: str | None, device: str | None
) -> Iterator[dict[str, Any]]:
    if store is not None:
        for summary in store.summaries(kernel, device):
            yield record_row("store", summary)
        for run in store.unfinished(kernel, device):
            counts = (run.date, run.timed, run.failed)
            yield record_row("unfinished", RecordSummary.at(run.key, None, *counts))
        for one in store.stream_predictions(kernel, device):
            facts = (one.config.to_dict(), one.provenance.date)
            yield record_row("predicted", RecordSummary.at(one.key, *facts))
    for record in shipped_records():
        if kernel in (None, record.key.kernel) and device in (None, record.key.device):
            yield record_row("shipped", RecordSummary.of(record))


@app.command()
def show(
    key_prefix: Annotated[str, typer.Argument(metavar="KEYPREFIX", help="Digits of `ls`'s key.")],
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """Show one record with every timing, fastest first, and where it comes from."""
    layer, record = find_record(key_prefix, where)
    if as_json:
        more = {"layer": layer, "covers": covered(record.key.shape)}
        print_json({"key_digest": key_digest(record.key), **more, **record_to_json(record)})
        return
    facts = record_row(layer, RecordSummary.of(record)) | vars(record.provenance)
    if is_terminal():
        rows = [{"": name, " ": cell(value)} for name, value in facts.items()]
        write_result(mapping_table("", rows))
    else:
        for name, value in facts.items():
            print_line(f"{name:10} {cell(value)}")
    print_line("")
    times = ("median_us", "p20_us", "p80_us")
    print_table(
        [
            {"config": timing.config.to_dict()}
            | {name: getattr(timing, name) for name in times}
            | timing.cited()
            for timing in sorted(record.measurements, key=lambda timing: timing.median_us)
        ]
    )
    for config, failure in record.failures:
        write_result(Text(f"failed     {cell(str(config))}: {cell(str(failure))}"))


@app.command("export")
def export_records(
    file: Annotated[
        Path,
        typer.Argument(
            help="JSON file to write, replaced if it exists, or - for stdout; or, where its name "
            "ends in .sqlite, a new store to ship: all may read it, also where nothing can be "
            "written."
        ),
    ],
    kernel: Kernel = None,
    device: Device = None,
    samples: Annotated[bool, typer.Option("--samples", help="Keep every sample.")] = False,
    fastest: Annotated[
        int | None,
        typer.Option(
            min=1, help="Keep so many timings of each record, the winner's too, and no failures."
        ),
    ] = None,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """Write records of the user's store in the form of `cache/`, or as a store to ship."""
    if not is_stdout(file):
        check_destinations([("FILE", file)])
    with _existing(where) as store:
        records = store.stream(kernel, device) if store is not None else iter(())
        first = next(records, None)
        if first is None:
            raise InputError(
                f"store {place(where)}: no record of kernel {kernel or '(any)'} on device "
                f"{device or '(any)'}; `asmtune cache ls` lists them"
            )
        records = chain([first], records)
        if fastest is not None:
            records = (abridged(record, fastest) for record in records)
        if file.suffix == ".sqlite":
            from asmtune.store.database import write_for_readers

            count = write_for_readers(file, records if samples else map(without_samples, records))
        else:
            printed = lambda _, parts: sys.stdout.writelines(map(bytes.decode, parts))  # noqa: E731
            put = printed if is_stdout(file) else write_whole
            count = interchange.write(file, records, samples=samples, put=put)
    print_count("exported", count, as_json, f"records to {file}", err=is_stdout(file))


@app.command("import")
def import_records(
    file: Annotated[
        Path, typer.Argument(help="JSON file that `export` has written, or - for stdin.")
    ],
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """Add a file's records to the user's store, in place of those of the same key.

    The whole file is checked first. Where an import is cut off, whole records are in the store;
    importing the file again adds the rest.
    """
    from asmtune.store.database import Store

    records, count = interchange.read_checked(file), 0
    first = [*islice(records, 1)]  # of a malformed file no store is made
    try:
        with Store.open(_where(where)) as store:
            for saved in store.save_batches(chain(first, records), checked=True):
                count += saved
    except (StoreError, KeyboardInterrupt):
        rest = "whole; import the file again to add the rest"
        print_line(f"{count} records of {file} are in {place(where)}, {rest}", err=True)
        raise
    print_count("imported", count, as_json, f"records from {file}")


@app.command()
def verify(where: Where = None, as_json: AsJson = False) -> None:
    """Check the store and the shipped files; exit with 1 where anything is wrong."""
    with _existing(where) as store:
        findings = store.verify() if store else []
    try:
        shipped_records()
    except InputError as error:
        findings.append(StoreFinding("shipped", str(error)))
    if as_json:
        print_json_rows({"place": one.place, "problem": one.problem} for one in findings)
    else:
        for finding in findings:
            print_line(cell(str(finding)))
        print_line(f"{len(findings)} problems in {place(where)} and the shipped files", err=True)
    if findings:
        raise typer.Exit(1)


@app.command()
def clear(
    kernel: Kernel = None,
    device: Device = None,
    yes: Annotated[bool, typer.Option("--yes", help="Really delete.")] = False,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """Delete records of the user's store with all timings, what was predicted, and seeds.

    Seeds are of all devices: they stay where --device is given.
    """
    if not yes:
        raise InputError(
            f"store {place(where)}: would delete the records of kernel {kernel or '(any)'} on "
            f"device {device or '(any)'}; pass --yes to do so"
        )
    with _existing(where) as store:
        runs = len(store.unfinished(kernel, device)) if store else 0
        count = store.clear(kernel, device) if store else 0
    if device is None:
        SeedFolder(Settings.from_environment().seeds_dir).clear(kernel)
    if as_json:
        print_json({"cleared": count, "unfinished": runs})
    else:
        print_line(f"cleared {count} records and {runs} unfinished runs from {place(where)}")


def existing_records(kernel: str | None, device: str | None, where: str | None) -> list[TuneRecord]:
    """List the records of the user's store; none where there is no store."""
    with _existing(where) as store:
        return store.records(kernel, device) if store else []


@contextmanager
def _existing(where: str | None) -> Iterator[Store | None]:
    """Open the user's store if there is one: reading makes no file."""
    from asmtune.store import places
    from asmtune.store.database import Store

    gc.set_threshold(50_000)  # records have no cycles: to look for some took a tenth of a listing
    home = places.parse(_where(where))
    if isinstance(home, Path) and not store_exists(home):
        yield None
    else:
        with Store.open(_where(where)) as store:
            yield store


def _where(where: str | None) -> str:
    settings = Settings.from_environment()
    if not where and not settings.store_url:
        try:
            trusted_file(settings.store_path, *BESIDE)
        except UntrustedError as error:
            raise StoreError(fault_line("store", settings.store_path, error)) from error
        except OSError:
            pass  # whoever opens it says why it cannot be
    return where or settings.store_where


def place(where: str | None) -> str:
    """Name the store for messages, since a URL may hold a password."""
    from asmtune.store import places

    return places.shown(_where(where))


def find_record(prefix: str, where: str | None) -> tuple[str, TuneRecord]:
    """Find the one record, stored or shipped, whose key begins with these digits.

    Raises:
        InputError: there is none, or more than one.
    """
    digits = prefix.lower()
    if not digits or set(digits) - set(string.hexdigits):
        raise InputError(f"key {prefix!r}: expected hex digits, as `asmtune cache ls` shows them")
    with _existing(where) as store:
        matches = [("store", record) for record in (store.by_digest(digits) if store else [])]
        unfinished = store.unfinished() if store and not matches else []
    matches += [("shipped", r) for r in shipped_records() if key_digest(r.key).startswith(digits)]
    keys = {key_digest(record.key) for _, record in matches}
    if len(keys) == 1:
        return matches[0]
    runs = [run for run in unfinished if key_digest(run.key).startswith(digits)]
    if runs and not keys:
        raise InputError(
            f"key {prefix}: no record yet: {runs[0].timed} configs of {runs[0].key.kernel} are "
            "timed, and the run has not ended or was cut off; tune it again to go on"
        )
    raise InputError(
        f"key {prefix}: {len(keys) or 'no'} records start so; "
        f"{'give more digits' if keys else '`asmtune cache ls` lists them'}"
    )
