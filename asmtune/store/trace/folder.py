"""The folder of traces: names of runs, finding one, and deleting the oldest."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final

from asmtune.base.errors import InputError
from asmtune.base.fingerprint import canonical, digest
from asmtune.base.json_codec import to_json
from asmtune.core.records.tuned import TuneKey
from asmtune.store.trace.run import Header

SUFFIX: Final = ".jsonl"
MOST_RUNS: Final = 200
MOST_BYTES: Final = 256 << 20
"""Bytes of the whole folder; a run of 674 configs, all timed, takes 0.3 MB."""

_RUN: Final = re.compile(r"\d{8}-\d{6}-\w+-[0-9a-f]{4}(-\d+)?", re.ASCII)
_BEGINNING: Final = re.compile(r"\d[\w-]*", re.ASCII)
_NAME_LENGTH: Final = 24
_SHOWN: Final = 4


def run_id(header: Header) -> str:
    """Name a run by date, kernel and 4 hex digits of the key, so that names sort by date."""
    when = datetime.fromisoformat(header.date).strftime("%Y%m%d-%H%M%S")
    name = re.sub(r"\W+", "_", header.kernel.rpartition(".")[2], flags=re.ASCII)[:_NAME_LENGTH]
    return f"{when}-{name or 'kernel'}-{_key_digits(header.key)}"


def runs_of(folder: Path, key: TuneKey) -> list[Path]:
    """List files of a key's runs, oldest first; found by name, so others may be among them."""
    ending = re.compile(rf"-{_key_digits(key)}(-\d+)?$", re.ASCII)
    return [path for path in run_files(folder) if ending.search(path.stem)]


def _key_digits(key: TuneKey) -> str:
    return digest(canonical(to_json(key)))[:4]


def names_run(text: str) -> bool:
    """Tell whether an argument names a run, not a kernel or another file.

    A run is a path that ends in .jsonl, or an id or the beginning of an id: a digit, then letters,
    digits, "_" and "-". No kernel's name begins with a digit, and a file's has a "." or a "/".
    """
    return text.endswith(SUFFIX) or _BEGINNING.fullmatch(text) is not None


def find_run(folder: Path, text: str) -> Path:
    """Find the file of a run by its path, its id or the beginning of its id.

    Raises:
        InputError: no run, or more than one, begins so.
    """
    if text.endswith(SUFFIX):
        path = Path(text)
        return folder / path if len(path.parts) == 1 and not path.exists() else path
    files = run_files(folder)
    matches = [path for path in files if path.stem == text]
    matches = matches or [path for path in files if path.stem.startswith(text)]
    if len(matches) == 1:
        return matches[0]
    if not matches:
        raise InputError(f"no run {text!r} in {folder}; `asmtune runs` lists them")
    names = ", ".join(path.stem for path in matches[-_SHOWN:])
    raise InputError(f"run {text!r}: {len(matches)} begin so, the last {names}; give more of it")


def run_files(folder: Path) -> list[Path]:
    """List the traces of a folder, oldest first; none where there is no such folder.

    Raises:
        InputError: it cannot be listed.
    """
    try:
        files = [path for path in folder.iterdir() if path.suffix == SUFFIX]
        return sorted(path for path in files if _RUN.fullmatch(path.stem))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"folder of runs {folder}: {error.strerror}") from error


def create(folder: Path, name: str) -> tuple[Path, int]:
    """Make a file for a run, private and open for appending; return its path and descriptor.

    Raises:
        OSError: it cannot be made.
    """
    # mkdir gives parents the usual mode, so the cache's own folder is made by a call of its own.
    for place in (folder.parent, folder):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    for number in range(1, 1000):
        path = folder / f"{name}{f'-{number}' if number > 1 else ''}{SUFFIX}"
        try:
            return path, os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o600)
        except FileExistsError:
            continue
    raise FileExistsError(17, "a thousand runs of this name and second")


def prune(folder: Path, most: int = MOST_RUNS, most_bytes: int = MOST_BYTES) -> None:
    """Delete the oldest runs beyond a number and beyond a total size, as far as possible."""
    total = 0
    # Another process may be faster, or the folder may be another user's: neither fails this run.
    with suppress(OSError, InputError):
        for count, path in enumerate(reversed(run_files(folder))):
            total += path.stat().st_size
            if count >= most or (count and total > most_bytes):
                path.unlink()
