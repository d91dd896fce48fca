"""`asmtune export` and `asmtune import`: tuned configs for other stores and programs, and back."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asmtune.base.atomic_write import write_whole
from asmtune.base.errors import InputError, StoreError
from asmtune.cli.cache import Device, Kernel, Where, existing_store, open_store, place
from asmtune.cli.output import check_destinations, is_stdout, print_line, write_result
from asmtune.core.inputs.shapes import parse_assignments, unique
from asmtune.core.records.tuned import TuneRecord
from asmtune.store import interchange
from asmtune.store.codec import key_digest
from asmtune.store.interchange import abridged, shipped_records
from asmtune.workshop.exports.python_files import configs_of, python_file

if TYPE_CHECKING:
    from asmtune.store.database import Store


class Format(StrEnum):
    """The formats of an export."""

    JSON = "json"
    PYTHON = "python"


def export(
    to: Annotated[
        Path,
        typer.Argument(help="File to write, replaced if it exists, or - for stdout."),
    ],
    form: Annotated[
        Format,
        typer.Option(
            "--format",
            help="json: records with their timings, as `asmtune import` and cache/ have them; "
            "python: configs for programs without asmtune.",
        ),
    ] = Format.JSON,
    kernel: Kernel = None,
    device: Device = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Only keys with this value; repeatable."),
    ] = None,
    fastest: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of configs of each key, the winner first; default all in json, else 1.",
        ),
    ] = None,
    samples: Annotated[bool, typer.Option("--samples", help="Keep every sample, in json.")] = False,
    shipped: Annotated[
        bool, typer.Option("--shipped", help="Also what comes with asmtune and is not stored.")
    ] = False,
    where: Where = None,
) -> None:
    """Write tuned configs for another store, or for programs without asmtune."""
    if samples and form is not Format.JSON:
        raise InputError(f"--samples is for json, and the format is {form}")
    if not is_stdout(to):
        check_destinations([("TO", to)])
    with existing_store(where) as store:
        records = _selected(store, kernel, device, only or (), shipped=shipped)
        first = next(records, None)
        if first is None:
            raise InputError(
                f"store {place(where)}: no record of kernel {kernel or '(any)'} on device "
                f"{device or '(any)'}{''.join(f' with {one}' for one in only or ())}; "
                "`asmtune cache ls` lists them, and --shipped takes those that come with asmtune"
            )
        records = chain([first], records)
        if form is Format.JSON:
            if fastest is not None:
                records = (abridged(record, fastest) for record in records)
            count = _write_records(to, records, samples=samples)
        else:
            # Of several Tritons' records of a key, the last that was tuned.
            by_date = sorted(records, key=lambda record: record.provenance.date)
            listed = [*{key_digest(record.key): record for record in by_date}.values()]
            entries = (configs_of(record, fastest or 1) for record in _unedited(listed))
            _write_text(to, python_file(entries))
            count = len(listed)
    print_line(f"exported {count} records to {to}", err=is_stdout(to))


def _selected(
    store: Store | None,
    kernel: str | None,
    device: str | None,
    only: Iterable[str],
    *,
    shipped: bool,
) -> Iterator[TuneRecord]:
    """Yield the records to export, a key once: stored, else shipped."""
    chosen = unique(
        "--only", (pair for o in only for pair in parse_assignments(o, "--only").items())
    )
    stored = set()
    for record in store.stream(kernel, device) if store is not None else ():
        if _has(record, chosen):
            yield record
        if shipped:
            stored.add(key_digest(record.key))
    for record in shipped_records() if shipped else ():
        is_wanted = kernel in (None, record.key.kernel) and device in (None, record.key.device)
        if is_wanted and _has(record, chosen) and key_digest(record.key) not in stored:
            yield record


def _has(record: TuneRecord, chosen: Mapping[str, Any]) -> bool:
    values = {**record.key.dtypes, **record.key.shape}
    return all(values.get(name) == value for name, value in chosen.items())


def _write_records(to: Path, records: Iterator[TuneRecord], *, samples: bool) -> int:
    """Write whole records, of which one at a time is in memory; return how many."""
    printed = lambda _, parts: sys.stdout.writelines(map(bytes.decode, parts))  # noqa: E731
    put = printed if is_stdout(to) else write_whole
    return interchange.write(to, records, samples=samples, put=put)


def _unedited(records: list[TuneRecord]) -> list[TuneRecord]:
    """Return the records whose winners are whole without a file of hand-edited IR."""
    unedited = [record for record in records if record.winner.ir_override is None]
    if not unedited:
        raise InputError("every winner names a file of hand-edited IR, which no export carries")
    if len(unedited) < len(records):
        left = len(records) - len(unedited)
        print_line(f"{left} left out: their winners name files of hand-edited IR", err=True)
    return unedited


def _write_text(to: Path, text: str) -> None:
    if is_stdout(to):
        write_result(text.rstrip("\n"))
        return
    try:
        write_whole(to, text.encode())
    except OSError as error:
        raise InputError(f"{to}: {error.strerror or error}; name another place") from error


def import_configs(
    files: Annotated[
        list[Path],
        typer.Argument(help="Files of records that `export` writes, or - for stdin."),
    ],
    where: Where = None,
) -> None:
    """Add records to the user's store.

    A record takes the place of that of the same key and Triton, and launches use it as it is.

    A whole file is checked first. Where an import is cut off, whole records are in the store;
    importing the file again adds the rest.
    """
    count = sum(_import_records(file, where) for file in files)
    print_line(f"imported {count} records from {', '.join(map(str, files))}")


def _import_records(file: Path, where: str | None) -> int:
    records, count = interchange.read_checked(file), 0
    first = [*islice(records, 1)]  # of a malformed file no store is made
    try:
        with open_store(where) as store:
            for saved in store.save_batches(chain(first, records), checked=True):
                count += saved
    except (StoreError, KeyboardInterrupt):
        rest = "whole; import the file again to add the rest"
        print_line(f"{count} records of {file} are in {place(where)}, {rest}", err=True)
        raise
    return count
