"""Documents of tune records, the reviewed JSON files of `cache/` and exports.

Form:

    {
    "format": "asmtune-tuned",
    "version": 1,
    "records": [ ... ]
    }

Every measurement has a line of its own, so that the diff of two versions of a file shows what has
changed.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import tee
from pathlib import Path
from typing import Any, BinaryIO, Final

from asmtune.base.atomic_write import write_whole
from asmtune.base.errors import InputError, StoreError
from asmtune.base.json_codec import expected, parse_json, shown
from asmtune.base.limited_read import MIB, open_regular
from asmtune.core.records.tuned import Measurement, TuneRecord
from asmtune.store.codec import (
    SAMPLE_DECIMALS,
    key_digest,
    record_from_json,
    record_to_json,
    winner_is_timed,
)
from asmtune.store.lookup import minor_version

FORMAT: Final = "asmtune-tuned"
VERSION: Final = 1

_HEAD: Final = f'{{\n"format": "{FORMAT}",\n"version": {VERSION},\n"records": [\n'.encode()
_REPAIR: Final = "correct the file or export it again"


def write(
    path: Path,
    records: Iterable[TuneRecord],
    *,
    samples: bool = False,
    put: Callable[[Path, Iterable[bytes]], None] = write_whole,
) -> int:
    """Write a document to a file, which appears whole or stays as it was; return how many.

    One record at a time is in memory; `put` writes the document's parts.

    Raises:
        InputError: a record that `loads` would refuse, such as one whose winner was not timed.
        StoreError: the file cannot be written.
    """
    count = 0

    def document() -> Iterator[bytes]:
        nonlocal count
        yield _HEAD[:-1]
        mode = "rounded" if samples else "none"
        values, checked = tee(record_to_json(record, samples=mode) for record in records)
        for value, _ in zip(values, _records(checked, "export"), strict=True):
            yield (b",\n" if count else b"\n") + _record_text(value).encode()
            count += 1
        yield b"\n]\n}\n" if count else b"]\n}\n"

    try:
        put(path, document())
    except StoreError:
        raise
    except OSError as error:
        raise StoreError(
            f"{path}: cannot be written ({error.strerror or error}); "
            "check the folder and its free space, or name another file"
        ) from error
    return count


def in_order(records: Iterable[TuneRecord]) -> list[TuneRecord]:
    """Sort records as the reviewed files have them."""

    def place(record: TuneRecord) -> str:
        key = record.key
        named = [key.kernel, key.device, dict(key.dtypes), dict(key.shape)]
        return json.dumps(named, sort_keys=True, default=str)

    return sorted(records, key=place)


def loads(text: str | bytes, source: str) -> tuple[TuneRecord, ...]:
    """Parse the text of a document into records.

    Args:
        text: text of the document.
        source: name of the file, for messages.

    Raises:
        InputError: the text is not such a document, its version is newer, or a record is
            malformed; the message names file, record and field.
    """
    data = text if isinstance(text, bytes) else text.encode(errors="surrogatepass")
    return tuple(_stream(io.BytesIO(data), source))


def read(path: Path) -> tuple[TuneRecord, ...]:
    """Read the records of a document in a file.

    Raises:
        InputError: as `loads`, or the file cannot be read.
    """
    with _opened(path) as file:
        return tuple(_stream(file, str(path)))


def read_checked(path: Path) -> Iterator[TuneRecord]:
    """Check a whole document, then yield its records, of which one at a time is in memory.

    Raises:
        InputError: as `read`; before the first record.
    """
    with _opened(path) as file:
        for _ in _stream(file, str(path)):
            pass
        file.seek(0)
        yield from _stream(file, str(path))


def _opened(path: Path) -> BinaryIO:
    try:
        return open_regular(path, 1024 * MIB)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(source: object, error: OSError) -> InputError:
    return InputError(
        f"{source}: cannot be read ({error.strerror or error}); "
        "name a file that `asmtune export` has written"
    )


def _stream(file: BinaryIO, source: str) -> Iterator[TuneRecord]:
    try:
        yield from _records(_values(file), "records")
    except InputError as error:
        raise InputError(f"{source}: {error}; {_REPAIR}") from error
    except ValueError as error:
        raise InputError(f"{source}: not JSON ({error}); {_REPAIR}") from error
    except OSError as error:
        raise _unreadable(source, error) from error


def _values(file: BinaryIO) -> Iterator[Any]:
    """Yield the values of records: one by one if `write` made the file, else after all of it."""
    if file.read(len(_HEAD)) == _HEAD:
        yield from _written(file)
        return
    file.seek(0)
    document = parse_json(file.read(256 * MIB))
    if not isinstance(document, dict):
        raise expected("an object", "document", document)
    if document.get("format") != FORMAT:
        raise expected(repr(FORMAT), "format", document.get("format"))
    found = document.get("version")
    if type(found) is not int or found != VERSION:
        raise InputError(
            f"version is {found!r}, and this asmtune reads {VERSION}: use the asmtune that wrote it"
        )
    if unknown := sorted(document.keys() - {"format", "version", "records"}):
        raise InputError(f"unknown field {shown(unknown[0])}")
    if not isinstance(document.get("records"), list):
        raise expected("a list", "records", document.get("records"))
    yield from document["records"]


def _written(file: BinaryIO) -> Iterator[Any]:
    """Yield the values of records as `write` lays them out: each ends with a line of its own."""
    lines: list[bytes] = []
    for line in file:
        if line.rstrip() in (b"},", b"}"):
            yield parse_json(b"".join([*lines, b"}"]))
            lines = []
            if line.rstrip() == b"}":
                break
        else:
            lines.append(line)
    if lines or file.read().split() != [b"]", b"}"]:
        raise ValueError("cut off, or changed by hand between two records")


def _records(values: Iterable[Any], where: str) -> Iterator[TuneRecord]:
    seen: set[tuple[bytes, str]] = set()
    for index, value in enumerate(values):
        record = record_from_json(value, f"{where}[{index}]")
        if not winner_is_timed(record):
            raise expected(
                "one of the configs measured", f"{where}[{index}].winner", str(record.winner)
            )
        triton = minor_version(record.provenance.triton)
        key = bytes.fromhex(key_digest(record.key)), triton
        if key in seen:
            what = f"a key once for triton {triton}"
            raise expected(what, f"{where}[{index}].key", record.key.kernel)
        seen.add(key)
        yield record


def _record_text(value: dict[str, Any]) -> str:
    lines = [f' "{name}": {_line(value[name])}' for name in ("key", "winner", "provenance")]
    for name in ("measurements", "failures"):
        items = ",\n".join(f"  {_line(item)}" for item in value[name])
        lines.append(f' "{name}": [{items and chr(10) + items}]')
    return "{\n" + ",\n".join(lines) + "\n}"


_line: Final = json.JSONEncoder(sort_keys=True).encode


def abridged(record: TuneRecord, count: int) -> TuneRecord:
    """Shorten a record to its winner, the fastest others and failed alternatives; no samples.

    Times are rounded to 1 ns, except those below it.

    Args:
        record: record whose winner is among its timings.
        count: timings to keep. The winner's is always kept, and so are those of alternatives in
            its place: where one of them cannot be called, the next fastest is.
    """
    plain = record.winner.plain
    fastest = sorted(record.measurements, key=lambda timing: timing.median_us)
    ranked = sorted(fastest, key=lambda timing: timing.config.plain != plain)
    beside = sum(timing.config.plain == plain for timing in fastest)
    kept = sorted(ranked[: max(count, beside)], key=lambda timing: timing.median_us)
    failed = tuple(pair for pair in record.failures if pair[0].alternative is not None)
    return replace(record, measurements=tuple(map(_rounded, kept)), failures=failed)


def _rounded(timing: Measurement) -> Measurement:
    times = {name: getattr(timing, name) for name in ("median_us", "p20_us", "p80_us")}
    rounded = {name: round(us, SAMPLE_DECIMALS) or us for name, us in times.items()}
    return replace(timing, samples_us=(), **rounded)
