"""Files of bench runs: read with every field checked, written whole or not at all.

A run is a JSON document, `{"format": "asmtune-bench", "version": 1, ...}` with the fields of
`BenchRun`; times are in microseconds. A name that ends in .gz is compressed.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, get_args

from asmtune.base.atomic_write import write_whole
from asmtune.base.errors import InputError
from asmtune.base.json_codec import parse_json, printable
from asmtune.store.trace.reader import decoded, encoded
from asmtune.studies.regression.run import BenchRun, Why

FORMAT: Final = "asmtune-bench"
VERSION: Final = 1

LEAST_US: Final = 1e-6
MOST_US: Final = 1e12
"""Twelve days."""

_MADE_BY: Final = "give a file that `asmtune bench` has written"
_COMPRESSED: Final = ".gz"


def read_run(path: Path, what: str = "run") -> BenchRun:
    """Reads the run of a file.

    Args:
        path: the file.
        what: what messages call it, "run" or "--baseline".

    Raises:
        InputError: it cannot be read, is no run, of a newer version, or holds no timing; names
            file and field.
    """
    where = f"{what} {path}"
    text = read_text(path, where, _MADE_BY)
    if not text.strip():
        raise InputError(f"{where}: the file is empty; {_MADE_BY}")
    try:
        document = parse_json(text)
    except ValueError as error:
        raise InputError(f"{where}: not JSON ({error}); {_MADE_BY}") from error
    return run_from_json(document, where)


def run_from_json(document: Any, where: str) -> BenchRun:
    """Reads the run of a JSON document.

    Raises:
        InputError: as `read_run`.
    """
    checked = of_form(document, FORMAT, VERSION, where)
    run = decoded(BenchRun, checked, where)
    if not run.rows:
        raise InputError(f"{where}: it holds no timing of any kernel; {_MADE_BY}")
    for place, row in enumerate(run.rows):
        field = f"{where}, rows[{place}], samples"
        if not row.samples or not all(row.samples):
            raise InputError(f"{field}: a process without samples; {_MADE_BY}")
        check_times([us for samples in row.samples for us in samples], field, _MADE_BY)
    for place, one in enumerate(run.missed):
        if one.why not in get_args(Why):
            known = " or ".join(get_args(Why))
            raise InputError(f"{where}, missed[{place}], why: expected {known}; {_MADE_BY}")
    (subject, often), *_ = Counter(row.subject.identity for row in run.rows).most_common(1)
    if often > 1:
        raise InputError(f"{where}: {printable(subject)} stands there {often} times; {_MADE_BY}")
    return run


def check_times(times_us: Iterable[float], field: str, advice: str) -> None:
    """Makes sure that times are some that a launch can take; beyond, ratios have no number.

    Raises:
        InputError: one is not.
    """
    if not all(LEAST_US <= us <= MOST_US for us in times_us):
        span = f"from {LEAST_US:g} to {MOST_US:g} us"
        raise InputError(f"{field}: expected times above 0, {span}; {advice}")


def write_run(path: Path, run: BenchRun) -> None:
    """Writes a run, a line a row; the file appears whole or stays as it was.

    Raises:
        InputError: it cannot be written.
    """
    document = run_to_json(run)
    lines = []
    for name, value in document.items():
        listed = isinstance(value, list) and value
        items = ",\n".join(f"  {json.dumps(item)}" for item in value) if listed else ""
        lines.append(f" {json.dumps(name)}: " + (f"[\n{items}]" if listed else json.dumps(value)))
    write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")


def run_to_json(run: BenchRun) -> dict[str, Any]:
    """Converts a run to JSON values, which `run_from_json` reads."""
    return {"format": FORMAT, "version": VERSION, **encoded(run)}


def of_form(document: Any, form: str, version: int, where: str) -> Mapping[str, Any]:
    """Returns a document if its format and version are known.

    Raises:
        InputError: it does not.
    """
    form_version = document.get("version") if isinstance(document, dict) else None
    if (
        not isinstance(document, dict)
        or document.get("format") != form
        or type(form_version) is not int
    ):
        raise InputError(f'{where}: expected a document of format "{form}"; {_MADE_BY}')
    if form_version < 1:
        raise InputError(f"{where}: there is no form {form_version}; {_MADE_BY}")
    if form_version > version:
        raise InputError(
            f"{where}: written by a newer asmtune (form {form_version}, this one knows {version}); "
            "upgrade asmtune"
        )
    return document


def read_text(path: Path, where: str, advice: str) -> str:
    """Reads the text of a file, decompressed if its name ends in .gz.

    Raises:
        InputError: it cannot be read, or is no text.
    """
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == _COMPRESSED else data).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: no text: {error.reason}; {advice}") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{where}: not whole, or not compressed; {advice}") from error
    except OSError as error:
        raise InputError(f"{where}: {error.strerror or error}; {advice}") from error


def write_text(path: Path, text: str) -> None:
    """Writes a file, compressed where its name ends in .gz; it appears whole or stays as it was.

    Raises:
        InputError: it cannot be written.
    """
    data = text.encode()
    write_bytes(path, gzip.compress(data, mtime=0) if path.suffix == _COMPRESSED else data)


def write_bytes(path: Path, data: bytes) -> None:
    """Writes bytes as `write_text` writes text.

    Raises:
        InputError: it cannot be written.
    """
    try:
        write_whole(path, data)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}; name a file to write") from error
