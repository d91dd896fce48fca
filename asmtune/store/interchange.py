"""Documents of tune records, the reviewed JSON files of `cache/` and exports.

Form:

    {
    "format": "asmtune-tuned",
    "version": 1,
    "records": [ ... ]
    }

Every measurement has a line of its own, so that the diff of two versions of a file shows what has
changed.

Those of `asmtune.shipped` are the read-only layer. A launch parses only the files that name its
kernel. Parsing all 183 records of 16 kernels (260 KB) took 72 ms, parsing the files of one kernel
2 ms, and seeing that no file names a user's kernel 0.1 ms.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from importlib import resources
from itertools import tee
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from asmtune.base.atomic_write import write_whole
from asmtune.base.errors import InputError, StoreError
from asmtune.base.json_codec import expected, parse_json, shown
from asmtune.base.limited_read import MIB, open_regular
from asmtune.core.records.tuned import Measurement, Provenance, TuneKey, TuneRecord
from asmtune.store.codec import (
    SAMPLE_DECIMALS,
    key_digest,
    record_from_json,
    record_to_json,
    winner_is_timed,
)
from asmtune.store.lookup import StoreLookup, judge, minor_version, preferred

if TYPE_CHECKING:
    from asmtune.store.database import Store
    from asmtune.store.safe_store import SafeStore


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


def shipped_records() -> tuple[TuneRecord, ...]:
    """Return every record of every `*.json` in `asmtune.shipped`, in order of the files' names.

    Raises:
        InputError: a file is malformed; names file, record and field.
    """
    return tuple(record for name in _files() for record in _parsed(name))


def shipped_of(kernel: str, device: str | None = None) -> tuple[TuneRecord, ...]:
    """Return the records shipped for a kernel, by its full name, for a device or for all.

    Raises:
        InputError: a file that names them is malformed; names file, record and field.
    """
    named = [json.dumps(name).encode() for name in (kernel, device) if name is not None]
    files = [name for name, text in _files().items() if all(word in text for word in named)]
    records = (record for name in files for record in _parsed(name))
    return tuple(r for r in records if r.key.kernel == kernel and device in (None, r.key.device))


def shipped_lookup(key: TuneKey, expected: Provenance) -> StoreLookup:
    """Look up a key in the shipped records, judged as a record of the store is.

    Files may hold a key several times, for versions of Triton: the valid record is taken, or else
    the newest that differs in Triton alone.

    Raises:
        InputError: a shipped file is malformed.
    """
    miss = StoreLookup("miss", detail=f"nothing shipped for {key.kernel}", layer="shipped")
    digest = key_digest(key)  # 1, 1.0 and True are alike
    shipped = shipped_of(key.kernel, key.device)
    own = (r for r in shipped if r.key == key and key_digest(r.key) == digest)
    return preferred(judge(record, expected, "shipped") for record in own) or miss


@cache
def _files() -> dict[str, bytes]:
    try:
        folder = resources.files("asmtune.shipped")
    except ModuleNotFoundError:
        # A source tree on the path without an installation: only that gives `cache/` this name.
        return {}
    files = sorted(folder.iterdir(), key=lambda item: item.name)
    return {item.name: item.read_bytes() for item in files if item.name.endswith(".json")}


@cache
def _parsed(name: str) -> tuple[TuneRecord, ...]:
    return loads(_files()[name], f"asmtune.shipped/{name}")


def find_tuned(key: TuneKey, expected: Provenance, store: Store | SafeStore | None) -> StoreLookup:
    """Look up a key in the user's store, then in the shipped layer.

    A hit of the user's store wins over a shipped one: it was measured on the user's machine.
    Without a hit, the user's store gives the reason, unless it has no record of the key, or the
    shipped layer alone has one of another Triton.

    Args:
        key: key of the launch.
        expected: how it would be tuned now.
        store: the user's store; None asks the shipped layer alone.

    Raises:
        StoreError: the store cannot be read.
        InputError: a shipped file is malformed.
    """
    own = StoreLookup("miss") if store is None else store.lookup(key, expected)
    if own.outcome == "hit":
        return own
    shipped = shipped_lookup(key, expected)
    better = shipped.outcome == "hit" or (shipped.is_candidate and not own.is_candidate)
    return shipped if better or own.outcome == "miss" else own
