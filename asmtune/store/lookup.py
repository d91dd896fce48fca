"""Answers of the store, the rules that say which records are still valid, and a quick lookup.

A new process needs no more than `fast_lookup`. SQLAlchemy alone takes 130 ms to load, on a machine
where the rest of a lookup takes 20 ms, most of them for the samples of 128 timings, which a launch
does not need. `fast_lookup` reads one row with Python's `sqlite3`. Where anything about the file or
the row is unexpected, it answers "not sure", and the caller opens the `Store`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from asmtune.base.errors import InputError, StoreError
from asmtune.base.json_codec import expected, json_of, names_of
from asmtune.base.trust import trusted_file
from asmtune.core.config import Config
from asmtune.core.records.tuned import Measurement, Provenance, TuneKey, TuneRecord
from asmtune.store import codec
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

Outcome = Literal["hit", "miss", "stale", "corrupt"]
Layer = Literal["store", "shipped"]

DIGITS_SHOWN: Final = 12
"""Digits of a digest in messages and tables."""


class StoreWarning(UserWarning):
    """Something was wrong with the store; work goes on without what is lost."""


@dataclass(frozen=True)
class StoreLookup:
    """The answer to a lookup.

    Attributes:
        outcome: "hit" (use it), "miss" (nothing there), "stale" (made with
            another source, space or Triton) or "corrupt" (unreadable).
        record: the record of a hit; of a stale one too, since its timings may be of use.
        detail: what was missed, what differs or what is wrong; empty at a hit.
        layer: layer that the answer comes from.
        is_candidate: whether a stale record differs in Triton's version alone: its fastest configs
            are likely the fastest here.
    """

    outcome: Outcome
    record: TuneRecord | None = None
    detail: str = ""
    layer: Layer = "store"
    is_candidate: bool = False

    def lacks(self, alternatives: Collection[str]) -> bool:
        """Return whether the user's own record has not tried one; what is shipped stays."""
        mine = self.record if (self.outcome, self.layer) == ("hit", "store") else None
        return mine is not None and not {*alternatives} <= mine.tried


SMALL: Final = "small"
"""`Provenance.space` of a key that was found too small to tune: no space was searched."""


@dataclass(frozen=True)
class StoredPrediction:
    """The config that the model chose for a key, or that a small one got; nothing was timed.

    Attributes:
        key: key of the launch.
        config: the config; without `pre_hook` where it comes from a store.
        predicted_us: predicted microseconds of a launch; None where no time is predicted.
        provenance: source, space and versions it was made with; the space is `SMALL` of a key
            that was found too small to tune.
    """

    key: TuneKey
    config: Config
    predicted_us: float | None
    provenance: Provenance

    @classmethod
    def of(cls, record: TuneRecord) -> StoredPrediction:
        """Take a record whose only timing, if it has one, is a prediction."""
        return cls(record.key, record.winner, record.median_us, record.provenance)

    @property
    def as_record(self) -> TuneRecord:
        """Return the record that `of` takes."""
        us = self.predicted_us
        timed = () if us is None else (Measurement(self.config, us, us, us, ()),)
        return TuneRecord(self.key, self.config, timed, self.provenance)

    @property
    def is_small(self) -> bool:
        """Return whether the key was found too small to tune."""
        return self.provenance.space == SMALL

    def holds(self, expected: Provenance) -> bool:
        """Return whether it is valid now; what was found small, in any space."""
        now = replace(expected, space=SMALL) if self.is_small else expected
        return not differences(self.provenance, now)


class RecordSummary(NamedTuple):
    """A record without its timings; a plain tuple, since there may be 100,000.

    Attributes:
        digest: the key's.
        kernel, shape, dtypes, device, source, triton, driver, date: as the record has them.
        winner: its values, as `Config.to_dict` gives them.
        timed, failed: number of its timings and failures.
        median_us: the winner's median time; None if it was not timed.
    """

    digest: str
    kernel: str
    shape: Mapping[str, Any]
    dtypes: Mapping[str, str]
    device: str
    winner: Mapping[str, Any]
    source: str
    triton: str
    driver: str
    date: str
    timed: int
    failed: int
    median_us: float | None

    @classmethod
    def of(cls, record: TuneRecord) -> RecordSummary:
        """Summarise a record."""
        row = codec.row_of(record, checked=True)
        return cls.of_head(tuple(row[name] for name in codec.HEAD))

    @classmethod
    def of_head(cls, head: tuple[Any, ...]) -> RecordSummary:
        """Check the columns `HEAD` of a row against their seal, and summarise them.

        Raises:
            InputError: the row has changed since it was written, or holds no record.
        """
        codec.check_seal(head)
        digest, kernel, shape, dtypes, device, winner, source, _, triton, *_ = head
        sizes = json_of(shape, "row.shape")
        if not isinstance(sizes, dict):
            raise expected("an object", "row.shape", sizes)
        key = (digest, kernel, sizes, _dtypes(dtypes), device)
        return cls(*key, _winner(winner), source, triton, *head[_DRIVER : _DRIVER + 5])


_DRIVER: Final = codec.HEAD.index("driver")  # the date follows, and three sums


# All but the sizes of a shape is alike in many records, and read once.
@lru_cache(maxsize=4096)
def _dtypes(text: str) -> Mapping[str, str]:
    return names_of(json_of(text, "row.dtypes"), "row.dtypes")


@lru_cache(maxsize=4096)
def _winner(text: str) -> Mapping[str, Any]:
    return codec.config_from_json(json_of(text, "row"), "row.winner").to_dict()


def judge(record: TuneRecord, expected: Provenance, layer: Layer) -> StoreLookup:
    """Return a record as a hit, or as stale where its provenance differs from `expected`."""
    differing = differences(record.provenance, expected)
    alone = len(differing) == 1 and differing[0].startswith("triton")
    outcome: Outcome = "stale" if differing else "hit"
    return StoreLookup(outcome, record, "; ".join(differing), layer, alone)


def preferred(answers: Iterable[StoreLookup]) -> StoreLookup | None:
    """Return a hit, else a record of another Triton, the newest, else any other answer."""
    return max(answers, key=_preference, default=None)


def _preference(answer: StoreLookup) -> tuple[bool, bool, str]:
    date = "" if answer.record is None else answer.record.provenance.date
    return answer.outcome == "hit", answer.is_candidate, date


def differences(recorded: Provenance, expected: Provenance) -> list[str]:
    """List, in one text each, which of source, space and Triton's major.minor differ.

    Torch, asmtune and the driver may change: they do not decide which binary a
    config gives, and re-tuning after each driver update costs more than it gains.
    """
    pairs = {
        "source": (recorded.source, expected.source),
        "space": (recorded.space, expected.space),
        "triton": (minor_version(recorded.triton), minor_version(expected.triton)),
    }
    return [
        f"{name} differs: recorded {_short(old)}, now {_short(new)}"
        for name, (old, new) in pairs.items()
        if old != new
    ]


def _short(value: str) -> str:
    return value[:DIGITS_SHOWN] or "none"


def minor_version(version: str) -> str:
    """Cut a version to major.minor: the part that decides which binary a config gives."""
    return ".".join(version.split(".")[:2])


@dataclass(frozen=True)
class StoreFinding:
    """A problem that `Store.verify` found.

    Attributes:
        place: "file", or the record: digits of its key and its kernel.
        problem: what is wrong there.
    """

    place: str
    problem: str


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
