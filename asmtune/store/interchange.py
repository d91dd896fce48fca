"""Documents of tune records: the reviewed JSON files of `cache/`, and exports.

Form:

    {
    "format": "asmtune-tuned",
    "version": 1,
    "records": [ ... ]
    }

Records are sorted and every measurement has a line of its own, so that the diff of
two versions of a file shows what has changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from asmtune.base.atomic_write import write_whole
from asmtune.base.errors import InputError, StoreError
from asmtune.base.json_codec import expected, parse_json, shown
from asmtune.base.limited_read import MIB, read_limited
from asmtune.core.records.tuned import Measurement, TuneRecord
from asmtune.store.codec import (
    SAMPLE_DECIMALS,
    key_digest,
    record_from_json,
    record_to_json,
    winner_is_timed,
)

FORMAT: Final = "asmtune-tuned"
VERSION: Final = 1

_REPAIR: Final = "correct the file or export it again"


def dumps(records: Iterable[TuneRecord], *, samples: bool = False) -> str:
    """Write records as the text of a document; the same text for any order of them.

    Args:
        records: records to write, one per key.
        samples: whether to write every sample, rounded to 1 ns.

    Raises:
        InputError: a record that `loads` would refuse, such as one whose winner was not timed.
    """
    mode = "rounded" if samples else "none"
    values = [record_to_json(record, samples=mode) for record in records]
    names = ("kernel", "device", "dtypes", "shape")
    values.sort(key=lambda v: json.dumps([v["key"][n] for n in names], sort_keys=True, default=str))
    _records(values, "export")
    body = ",\n".join(_record_text(value) for value in values)
    return (
        f'{{\n"format": "{FORMAT}",\n"version": {VERSION},\n'
        f'"records": [{body and chr(10) + body + chr(10)}]\n}}\n'
    )


def loads(text: str | bytes, source: str) -> tuple[TuneRecord, ...]:
    """Parse the text of a document into records.

    Args:
        text: text of the document.
        source: name of the file, for messages.

    Raises:
        InputError: the text is not such a document, its version is newer, or a record is
            malformed; the message names file, record and field.
    """
    try:
        document = parse_json(text)
    except ValueError as error:
        raise InputError(f"{source}: not JSON ({error}); {_REPAIR}") from error
    try:
        return _records(_body(document), "records")
    except InputError as error:
        raise InputError(f"{source}: {error}; {_REPAIR}") from error


def write(path: Path, records: Iterable[TuneRecord], *, samples: bool = False) -> None:
    """Write a document to a file; the file appears whole or stays as it was.

    Raises:
        InputError: as `dumps`.
        StoreError: the file cannot be written.
    """
    text = dumps(records, samples=samples)
    try:
        write_whole(path, text.encode())
    except OSError as error:
        raise StoreError(
            f"{path}: cannot be written ({error.strerror or error}); "
            "check the folder and its free space, or name another file"
        ) from error


def read(path: Path) -> tuple[TuneRecord, ...]:
    """Read the records of a document in a file.

    Raises:
        InputError: as `loads`, or the file cannot be read.
    """
    try:
        text = read_limited(path, 1024 * MIB)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror or error}); "
            "name a file that `asmtune cache export` has written"
        ) from error
    return loads(text, str(path))


def _body(document: Any) -> list[Any]:
    if not isinstance(document, dict):
        raise expected("an object", "document", document)
    if document.get("format") != FORMAT:
        raise expected(repr(FORMAT), "format", document.get("format"))
    version = document.get("version")
    if type(version) is not int or version < 1:
        raise expected(f"a version from 1 to {VERSION}", "version", version)
    if version > VERSION:
        raise InputError(
            f"version: {version} is newer than {VERSION}, which this asmtune knows: upgrade asmtune"
        )
    if unknown := sorted(document.keys() - {"format", "version", "records"}):
        raise InputError(f"unknown field {shown(unknown[0])}")
    if not isinstance(document.get("records"), list):
        raise expected("a list", "records", document.get("records"))
    return list(document["records"])


def _records(values: list[Any], where: str) -> tuple[TuneRecord, ...]:
    records: dict[str, TuneRecord] = {}
    for index, value in enumerate(values):
        record = record_from_json(value, f"{where}[{index}]")
        if not winner_is_timed(record):
            raise expected(
                "one of the configs measured", f"{where}[{index}].winner", str(record.winner)
            )
        if records.setdefault(key_digest(record.key), record) is not record:
            raise expected("a key once", f"{where}[{index}].key", record.key.kernel)
    return tuple(records.values())


def _record_text(value: dict[str, Any]) -> str:
    lines = [f' "{name}": {_line(value[name])}' for name in ("key", "winner", "provenance")]
    for name in ("measurements", "failures"):
        items = ",\n".join(f"  {_line(item)}" for item in value[name])
        lines.append(f' "{name}": [{items and chr(10) + items}]')
    return "{\n" + ",\n".join(lines) + "\n}"


def _line(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


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


def without_samples(record: TuneRecord) -> TuneRecord:
    """Leave the samples of a record's timings out."""
    timings = (replace(timing, samples_us=()) for timing in record.measurements)
    return replace(record, measurements=tuple(timings))


def _rounded(timing: Measurement) -> Measurement:
    times = {name: getattr(timing, name) for name in ("median_us", "p20_us", "p80_us")}
    rounded = {name: round(us, SAMPLE_DECIMALS) or us for name, us in times.items()}
    return replace(timing, samples_us=(), **rounded)
