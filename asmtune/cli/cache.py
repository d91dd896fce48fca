"""`asmtune cache`: lists, shows, checks and clears tuned configs."""

from __future__ import annotations

import gc
import json
import string
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Group
from rich.text import Text

from asmtune.base.errors import InputError, StoreError
from asmtune.base.fingerprint import version_of
from asmtune.base.settings import Settings
from asmtune.base.trust import UntrustedError, fault_line, trusted_file
from asmtune.cli.output import (
    Output,
    RowForm,
    RowFormat,
    TextForm,
    TextFormat,
    print_line,
    table_of,
    write_result,
    write_rows,
)
from asmtune.core.records.tuned import TuneRecord
from asmtune.report.cells import cell
from asmtune.store.codec import key_digest, record_to_json
from asmtune.store.interchange import shipped_records
from asmtune.store.lookup import DIGITS_SHOWN, RecordSummary, StoreFinding, minor_version
from asmtune.store.sqlite_file import BESIDE, store_exists

if TYPE_CHECKING:
    from asmtune.store.database import Store


Here = tuple[frozenset[str], str, str]
"""This machine's devices, their driver, and Triton's minor version."""


def this_machine() -> Here:
    """Return what records are compared with."""
    from asmtune.measure.timing.nvml import driver_version, installed_devices

    return installed_devices(), driver_version(), minor_version(version_of("triton"))


def use_here(record: RecordSummary, here: Here) -> str:
    """Say if a record can be used on this machine; without a GPU Triton alone is compared.

    One of another driver is used. Of another Triton's the fastest are timed again.
    """
    devices, driver, triton = here
    if devices and record.device not in devices:
        return "other device"
    if minor_version(record.triton) != triton:
        return "other Triton"
    return "other driver" if devices and record.driver != driver else "usable"


def record_row(layer: str, record: RecordSummary, here: Here) -> dict[str, Any]:
    """Return a tuned config as `ls` and `show` give it."""
    return {
        "key": record.digest[:DIGITS_SHOWN],
        "layer": layer,
        "kernel": record.kernel,
        "shape": record.shape,
        "dtypes": record.dtypes,
        "device": record.device,
        "winner": record.winner,
        "median_us": record.median_us,
        "date": record.date,
        "timed": record.timed,
        "failed": record.failed,
        "here": use_here(record, here),
    }


_SPARE: Final = ("failed", "timed", "date", "dtypes", "samples", "layer", "here")
"""Columns that a narrow terminal may lack, the least important first."""

app = typer.Typer(
    name="cache",
    help="Tuned configs and their timings: the user's store and what comes with asmtune.",
    no_args_is_help=True,
)

Kernel = Annotated[str | None, typer.Option(help="Only this kernel, as `ls` names it.")]
Device = Annotated[str | None, typer.Option(help='Only this device, such as "NVIDIA H200".')]
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
    kernel: Kernel = None,
    device: Device = None,
    where: Where = None,
    form: RowFormat = RowForm.TEXT,
    output: Output = None,
) -> None:
    """List every tuned config: the user's, the shipped; and untimed choices.

    A config of layer `predicted` is the model's, one of layer `small` that of a launch too small
    to tune. Key, config and origin of each are checked; its timings are counted, and `verify`
    checks them.
    """
    with existing_store(where) as store:
        rows = _listed(store, kernel, device)
        if not write_rows("", rows, form, output, spare=_SPARE) and form is RowForm.TEXT:
            print_line(f"no tuned config in {place(where)} or shipped", err=True)


def _listed(
    store: Store | None, kernel: str | None, device: str | None
) -> Iterator[dict[str, Any]]:
    here = this_machine()
    for layer, summary in _summaries(store, kernel, device):
        yield record_row(layer, summary, here)


def _summaries(
    store: Store | None, kernel: str | None = None, device: str | None = None
) -> Iterator[tuple[str, RecordSummary]]:
    if store is not None:
        yield from (("store", one) for one in store.summaries(kernel, device))
        for one in store.predictions(kernel, device):
            summary = RecordSummary.of(one.as_record)._replace(timed=0, median_us=None)
            yield "small" if one.is_small else "predicted", summary
    for record in shipped_records():
        if kernel in (None, record.key.kernel) and device in (None, record.key.device):
            yield "shipped", RecordSummary.of(record)


@app.command()
def show(
    key_prefix: Annotated[str, typer.Argument(metavar="KEYPREFIX", help="Digits of `ls`'s key.")],
    where: Where = None,
    form: TextFormat = TextForm.TEXT,
    output: Output = None,
) -> None:
    """Show one record with every timing, fastest first, and where it comes from."""
    layer, record = find_record(key_prefix, where)
    if form is TextForm.JSON:
        named = {"key_digest": key_digest(record.key), "layer": layer}
        whole = {**named, **record_to_json(record)}
        write_result(json.dumps(whole, indent=1), output)
        return
    row = record_row(layer, RecordSummary.of(record), this_machine())
    facts = row | vars(record.provenance)
    names = ("median_us", "p20_us", "p80_us")
    timings = [
        {"config": timing.config.to_dict()}
        | {name: getattr(timing, name) for name in names}
        | timing.cited()
        for timing in sorted(record.measurements, key=lambda timing: timing.median_us)
    ]
    told = [{"fact": name, "value": value} for name, value in facts.items()]
    failed = [Text(f"failed     {cell(str(c))}: {cell(str(f))}") for c, f in record.failures]
    write_result(Group(table_of("", told), "", table_of("", timings), *failed), output)


@app.command()
def verify(where: Where = None, form: RowFormat = RowForm.TEXT, output: Output = None) -> None:
    """Check the store and the shipped files; exit with 1 where anything is wrong.

    It counts the configs that are usable on this machine, and those of another Triton, driver or
    device.
    """
    uses: Counter[str] = Counter()
    with existing_store(where) as store:
        findings = store.verify() if store else []
        try:
            here = this_machine()
            kept = store if not findings else None  # a damaged one cannot be listed
            uses.update(
                use_here(one, here)
                for layer, one in _summaries(kept)
                if layer in ("store", "shipped")
            )
        except InputError as error:
            findings.append(StoreFinding("shipped", str(error)))
    rows = ({"place": one.place, "problem": one.problem} for one in findings)
    write_rows("", rows, form, output)
    if form is RowForm.TEXT:
        told = f"{len(findings)} problems in {place(where)} and the shipped files"
        if set(uses) - {"usable"}:
            counts = ", ".join(f"{count} {use}" for use, count in uses.most_common())
            told += f"; tuned configs on this machine: {counts}"
        print_line(told, err=True)
    if findings:
        raise typer.Exit(1)


@app.command()
def clear(
    kernel: Kernel = None,
    device: Device = None,
    yes: Annotated[bool, typer.Option("--yes", help="Really delete.")] = False,
    where: Where = None,
) -> None:
    """Delete records of the user's store with all timings, and what was predicted."""
    if not yes:
        raise InputError(
            f"store {place(where)}: would delete the records of kernel {kernel or '(any)'} on "
            f"device {device or '(any)'}; pass --yes to do so"
        )
    with existing_store(where) as store:
        count = store.clear(kernel, device) if store else 0
    print_line(f"cleared {count} records from {place(where)}")


@contextmanager
def existing_store(where: str | None) -> Iterator[Store | None]:
    """Open the user's store if there is one: reading makes no file."""
    from asmtune.store import places

    gc.set_threshold(50_000)  # records have no cycles: to look for some took a tenth of a listing
    home = places.parse(_where(where))
    if isinstance(home, Path) and not store_exists(home):
        yield None
    else:
        with open_store(where) as store:
            yield store


def open_store(where: str | None) -> Store:
    """Open the user's store, or make it."""
    from asmtune.store.database import Store

    return Store.open(_where(where))


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

    Of several Tritons' records of the key it is the one that launches take here, if there is one.

    Raises:
        InputError: no record matches, or more than one does.
    """
    digits = prefix.lower()
    if not digits or set(digits) - set(string.hexdigits):
        raise InputError(f"key {prefix!r}: expected hex digits, as `asmtune cache ls` shows them")
    with existing_store(where) as store:
        matches = [("store", record) for record in (store.by_digest(digits) if store else [])]
    matches += [("shipped", r) for r in shipped_records() if key_digest(r.key).startswith(digits)]
    keys = {key_digest(record.key) for _, record in matches}
    if len(keys) == 1:
        triton = this_machine()[2]
        return next(
            (m for m in matches if minor_version(m[1].provenance.triton) == triton), matches[0]
        )
    raise InputError(
        f"key {prefix}: {len(keys) or 'no'} records start so; "
        f"{'give more digits' if keys else '`asmtune cache ls` lists them'}"
    )
