"""A key's config from the store's SQLite file, and no more: what a new process needs.

SQLAlchemy alone takes 130 ms to load on a machine where the rest of a lookup takes 20, most of
it spent on the samples of 128 timings, which a launch does not need. A glance reads one row
by SQLite itself. Whatever is not as it should be is not for it to judge: it answers nothing,
and the store proper is asked.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from asmtune.base.errors import InputError
from asmtune.core.config import Config
from asmtune.core.records.tuned import Provenance, TuneKey
from asmtune.store import codec
from asmtune.store.lookup import differences
from asmtune.store.sqlite import SCHEMA_VERSION, connect

PATIENCE_S: Final = 1.0
"""How long a glance waits for a lock. Readers of SQLite's write-ahead log wait for nobody, but
where the log is just being made or recovered."""

_NAMES: Final = ("kernel", "shape", "dtypes", "device", "winner", *codec.PROVENANCE_FIELDS)
_SELECTED: Final = ", ".join(_NAMES)
_TUNED: Final = f"SELECT head, NULL, {_SELECTED} FROM keys WHERE digest = ?"
_PREDICTED: Final = f"SELECT seal, predicted_us, {_SELECTED} FROM predictions WHERE digest = ?"


@dataclass(frozen=True)
class StoredConfig:
    """What a store holds for a key.

    Attributes:
        config: to launch; without `pre_hook`.
        how: whether it was tuned, or predicted and never timed.
        predicted_us: microseconds of a launch of a predicted one.
    """

    config: Config
    how: Literal["tuned", "predicted"]
    predicted_us: float | None = None


@dataclass(frozen=True)
class FastAnswer:
    """The answer of a glance.

    Attributes:
        sure: whether it is that of the store proper; else the store proper must be asked.
        seen: what holds for the key: tuned, else predicted.
    """

    sure: bool
    seen: StoredConfig | None = None


def fast_lookup(where: str, key: TuneKey, expected: Provenance) -> FastAnswer:
    """What a store holds for a key, as far as one look can tell; makes no file.

    Args:
        where: path or URL of the store; a URL is not looked at.
        key: what is about to be launched.
        expected: how it would be tuned now.
    """
    if "://" in where:
        return FastAnswer(False)
    path = Path(where).expanduser()
    digest = codec.key_digest(key)
    try:
        if not path.exists():
            return FastAnswer(True)
        with closing(connect(path, PATIENCE_S)) as connection:
            version = connection.execute("SELECT value FROM meta WHERE name = 'schema_version'")
            if version.fetchall() != [(str(SCHEMA_VERSION),)]:
                return FastAnswer(False)
            tuned = connection.execute(_TUNED, (digest,)).fetchone()
            predicted = connection.execute(_PREDICTED, (digest,)).fetchone()
    except (sqlite3.Error, UnicodeDecodeError, OSError):
        # The store proper says what is wrong, and what to do. SQLite quotes a damaged name in
        # its message, which Python cannot decode then.
        return FastAnswer(False)
    try:
        seen = _tuned(tuned, digest, expected) or _predicted(predicted, digest, expected)
    except InputError:
        return FastAnswer(False)
    return FastAnswer(True, seen)


def _tuned(row: tuple[Any, ...] | None, digest: str, expected: Provenance) -> StoredConfig | None:
    if row is None:
        return None
    head = _head(row, digest)
    return None if differences(head.provenance, expected) else StoredConfig(head.winner, "tuned")


def _predicted(
    row: tuple[Any, ...] | None, digest: str, expected: Provenance
) -> StoredConfig | None:
    if row is None:
        return None
    head = _head(row, digest)
    if differences(head.provenance, expected):
        return None
    return StoredConfig(head.winner, "predicted", row[1])


def _head(row: tuple[Any, ...], digest: str) -> codec.Head:
    """What a row says, where it is what was written.

    Raises:
        InputError: it is not, or an older asmtune wrote it, which left no seal for a glance.
    """
    seal, predicted_us, *values = row
    head = codec.head_of(dict(zip(_NAMES, values, strict=True)), "row")
    if codec.key_digest(head.key) != digest or codec.head_seal(head, predicted_us) != seal:
        raise InputError("row: its values do not match its seal")
    return head
