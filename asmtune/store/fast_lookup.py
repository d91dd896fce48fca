"""Look up one key's config in the store's SQLite file, without SQLAlchemy.

A new process needs no more than this. SQLAlchemy alone takes 130 ms to load, on a machine where
the rest of a lookup takes 20 ms, most of them for the samples of 128 timings, which a launch does
not need. `fast_lookup` reads one row with Python's `sqlite3`. Where anything about the file or the
row is unexpected, it answers "not sure", and the caller opens the `Store`.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from asmtune.base.errors import InputError, StoreError
from asmtune.base.trust import trusted_file
from asmtune.core.config import Config
from asmtune.core.records.tuned import Provenance, TuneKey
from asmtune.store import codec
from asmtune.store.lookup import differences
from asmtune.store.sqlite_file import (
    APPLICATION_ID,
    BESIDE,
    SCHEMA_DIGEST,
    SCHEMA_QUERY,
    connect,
    connecting,
    current,
    holds_content,
    schema_digest,
)

SCHEMA_VERSION: Final = 1
"""Version of the store's tables (`tables`)."""

PATIENCE_S: Final = 1.0
"""Seconds to wait for a lock. Readers of SQLite's write-ahead log wait for nobody, except while
the log is being made or recovered."""

_NAMES: Final = (
    *("digest", "kernel", "shape", "dtypes", "device", "winner"),
    *codec.PROVENANCE_FIELDS,
)
_SELECTED: Final = ", ".join(_NAMES)
_TUNED: Final = f"SELECT head, seal, {_SELECTED} FROM keys WHERE digest = ?"
_TRIED: Final = " UNION ALL ".join(
    f"SELECT config FROM {table} WHERE key_id = (SELECT id FROM keys WHERE digest = :digest) "
    "AND config LIKE '%@alternative%'"
    for table in ("timings", "failures")
)
_PREDICTED: Final = f"SELECT seal, predicted_us, {_SELECTED} FROM predictions WHERE digest = ?"


Origin = Literal["tuned", "predicted"]


@dataclass(frozen=True)
class StoredConfig:
    """The config that a store holds for a key.

    Attributes:
        config: config to launch; without `pre_hook`.
        how: "tuned", or "predicted" and never timed.
        predicted_us: predicted microseconds of a launch; None for a tuned config.
        tried: names of the alternatives that were timed beside it, or that failed.
    """

    config: Config
    how: Origin
    predicted_us: float | None = None
    tried: frozenset[str] = frozenset()


@dataclass(frozen=True)
class FastAnswer:
    """The answer of `fast_lookup`.

    Attributes:
        sure: whether `Store` would give the same answer; if not, ask `Store`.
        seen: the valid config of the key, tuned before predicted; None if the store has none.
    """

    sure: bool
    seen: StoredConfig | None = None


def fast_lookup(
    where: str, key: TuneKey, expected: Provenance, *, is_own: bool = False
) -> FastAnswer:
    """Look up a key's config in an SQLite file; make no file.

    Args:
        where: path or URL of the store; a URL is never sure.
        key: key of the launch.
        expected: how the key would be tuned now.
        is_own: whether it is the user's alone, so that what others may write is not read.
    """
    if "://" in where:
        return FastAnswer(False)
    path = Path(where).expanduser()
    digest = codec.key_digest(key)
    try:
        if is_own:
            trusted_file(path, *BESIDE)
        if not holds_content(path):
            return FastAnswer(not path.exists())
        with connecting(PATIENCE_S), closing(connect(path, PATIENCE_S)) as connection:
            if not _is_known(connection):
                return FastAnswer(False)
            tuned = connection.execute(_TUNED, (digest,)).fetchone()
            predicted = connection.execute(_PREDICTED, (digest,)).fetchone()
            tried = connection.execute(_TRIED, {"digest": digest}).fetchall()
    except (sqlite3.Error, UnicodeDecodeError, OSError, StoreError):
        # `Store` says what is wrong and what to do. UnicodeDecodeError: SQLite quotes a damaged
        # name in its message, which Python then cannot decode.
        return FastAnswer(False)
    try:
        seen = _valid(tuned, expected, "tuned")
        if seen is None:
            seen = _valid(predicted, expected, "predicted")
        elif tried:
            names = (Config.from_dict(json.loads(config)).alternative for (config,) in tried)
            seen = replace(seen, tried=frozenset(filter(None, names)))
    except (InputError, ValueError):
        return FastAnswer(False)
    return FastAnswer(True, seen)


def _is_known(connection: sqlite3.Connection) -> bool:
    """Tell whether a file is a store of this version; its tables are read only then."""
    (mark,) = connection.execute("PRAGMA application_id").fetchone()
    schema = current(connection.execute(SCHEMA_QUERY).fetchall())
    if mark != APPLICATION_ID or schema_digest(sql for _, _, sql in schema) != SCHEMA_DIGEST:
        return False
    version = connection.execute("SELECT value FROM meta WHERE name = 'schema_version'")
    return version.fetchall() == [(str(SCHEMA_VERSION),)]


def _valid(row: tuple[Any, ...] | None, expected: Provenance, how: Origin) -> StoredConfig | None:
    """Parse a row; return None if it is missing, or not valid for `expected`.

    Raises:
        InputError: the row is malformed, or does not match its digest or its seal.
    """
    if row is None:
        return None
    seal, beside, *values = row
    fields = codec.sealed_fields(dict(zip(_NAMES, values, strict=True)), seal, beside)
    head = codec.read_head(fields)
    if differences(head.provenance, expected):
        return None
    return StoredConfig(head.winner, how, beside if how == "predicted" else None)
