"""Look up one key's config in the store's SQLite file, without SQLAlchemy.

A new process needs no more than this. SQLAlchemy alone takes 130 ms to load, on a machine where
the rest of a lookup takes 20 ms, most of them for the samples of 128 timings, which a launch does
not need. `fast_lookup` reads one row with Python's `sqlite3`. Where anything about the file or the
row is unexpected, it answers "not sure", and the caller opens the `Store`.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from asmtune.base.errors import InputError, StoreError
from asmtune.base.trust import trusted_file
from asmtune.core.config import Config
from asmtune.core.records.tuned import Provenance, TuneKey
from asmtune.store import codec
from asmtune.store.lookup import StoredPrediction, differences
from asmtune.store.sqlite_file import (
    APPLICATION_ID,
    BESIDE,
    SCHEMA_QUERY,
    SCHEMAS,
    connect,
    connecting,
    holds_content,
    schema_digest,
)

PATIENCE_S: Final = 1.0
"""Seconds to wait for a lock. Readers of SQLite's write-ahead log wait for nobody, except while
the log is being made or recovered."""

Origin = Literal["tuned", "predicted", "small"]


@dataclass(frozen=True)
class StoredConfig:
    """The config that a store holds for a key.

    Attributes:
        config: config to launch; without `pre_hook`.
        how: "tuned", or never timed: "predicted", or too "small" to tune.
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
        has_record: whether the store has a record of the key, valid or not.
    """

    sure: bool
    seen: StoredConfig | None = None
    has_record: bool = False


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
            head = f"SELECT {', '.join(codec.HEAD)} FROM"
            found = {
                table: connection.execute(f"{head} {table} WHERE digest = ?", (digest,)).fetchall()
                for table in ("keys", "predictions")
            }
    except (sqlite3.Error, UnicodeDecodeError, OSError, StoreError):
        # `Store` says what is wrong and what to do. UnicodeDecodeError: SQLite quotes a damaged
        # name in its message, which Python then cannot decode.
        return FastAnswer(False)
    try:
        valid = (_valid(table, row, expected) for table, rows in found.items() for row in rows)
        return FastAnswer(True, next(filter(None, valid), None), bool(found["keys"]))
    except InputError:
        return FastAnswer(False)


def _is_known(connection: sqlite3.Connection) -> bool:
    """Tell whether a file is a store of this version; its tables are read only then."""
    (mark,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    schema = schema_digest(connection.execute(SCHEMA_QUERY).fetchall())
    return bool((mark, schema) == (APPLICATION_ID, SCHEMAS.get(version)))


def _valid(table: str, row: tuple[Any, ...], expected: Provenance) -> StoredConfig | None:
    """Read the head of a row; return None if it is not valid for `expected`.

    Raises:
        InputError: the row is malformed, or does not match its digest or its seal.
    """
    head = codec.read_head(row)
    columns = dict(zip(codec.HEAD, row, strict=True))
    if table == "predictions":
        made = StoredPrediction(head.key, head.winner, columns["median_us"], head.provenance)
        how: Origin = "small" if made.is_small else "predicted"
        return StoredConfig(made.config, how, made.predicted_us) if made.holds(expected) else None
    if differences(head.provenance, expected):
        return None
    return StoredConfig(head.winner, "tuned", tried=codec.read_tried(columns["tried"]))
