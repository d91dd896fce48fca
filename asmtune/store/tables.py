"""The store's tables, in SQL that SQLite and PostgreSQL share, and how their rows are read.

What is known of a key is a record, in a row of one form: the columns `codec.HEAD`, then
`codec.OUTCOMES`. Each row carries the digest of its key and a seal: a digest of all its values. A
row is read back only where both match: a changed digit may parse and still be another config. A
damaged row is returned with its problem, and the store decides what to do about it.

Tables:

    keys           tuned keys, a row for each minor version of Triton
    predictions    configs that nobody has timed: of the model, or of launches too small to tune
    leases         keys that a process is tuning now
    meta           the schema's version
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Double,
    Index,
    Integer,
    MetaData,
    Row,
    String,
    Table,
    Text,
    and_,
    delete,
    func,
    insert,
    inspect,
    select,
    true,
)

from asmtune.base import json_codec
from asmtune.base.errors import InputError, StoreError
from asmtune.core.records.tuned import Provenance, TuneKey, TuneRecord
from asmtune.store import codec
from asmtune.store.lookup import DIGITS_SHOWN, RecordSummary, differences, minor_version
from asmtune.store.neighbours import NEAREST, KeyIndex
from asmtune.store.places import damaged
from asmtune.store.sqlite_file import (
    APPLICATION_ID,
    ELSEWHERE,
    SCHEMA_QUERY,
    SCHEMA_VERSION,
    SCHEMAS,
    schema_digest,
)

_T = TypeVar("_T")

BATCH: Final = 100
"""Records that one transaction reads or writes. With 100 timings of 60 samples each they are 10 MB
of text, and take some 10 ms."""

MANY: Final = 1000
"""Records that one transaction reads without their timings."""

metadata = MetaData()

_TYPES: Final = {"timed": Integer, "failed": Integer, "median_us": Double}


def _of_records(name: str, *unique: str) -> Table:
    named = [*codec.HEAD, *codec.OUTCOMES]
    columns: list[Column[Any]] = [
        Column(one, _TYPES.get(one, Text), nullable=one == "median_us") for one in named
    ]
    return Table(
        name,
        metadata,
        Column("id", Integer, primary_key=True),
        *columns,
        Index(f"{name}_by_digest", *(unique or ("digest",)), unique=bool(unique)),
        Index(f"{name}_by_kernel", "kernel", "device"),
        # An id is never used twice: deleting a damaged row by its id cannot delete the good
        # record that another process has just put in its place.
        sqlite_autoincrement=True,
    )


keys = _of_records("keys", "digest", "triton")
# Not in `keys`: a config that was never timed must not replace one that was.
predictions = _of_records("predictions", "digest")

OF_RECORDS: Final = (keys, predictions)

meta = Table(
    "meta",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)

leases = Table(
    "leases",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("owner", String(200), nullable=False),
    Column("beats", Integer, nullable=False),
)


def create(connection: Connection) -> None:
    """Make the tables and note their version; for one transaction."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.exec_driver_sql(f"PRAGMA user_version = {SCHEMA_VERSION}")
    metadata.create_all(connection)
    connection.execute(insert(meta).values(name="schema_version", value=str(SCHEMA_VERSION)))


def are_present(connection: Connection, place: str) -> bool:
    """Return False where a server's database has no tables yet; check those of others.

    Files are made with their tables and our application id: one without them is not a store.

    Raises:
        DamagedStoreError: the database does not hold the store's tables.
        StoreError: a newer asmtune has written it.
    """
    if connection.dialect.name == "sqlite":
        ask = connection.exec_driver_sql
        if ask("PRAGMA application_id").scalar_one() != APPLICATION_ID:
            raise damaged(place, "a database of another program")
        version = ask("PRAGMA user_version").scalar_one()
        _check_version(version, place)
        if schema_digest(ask(SCHEMA_QUERY)) != SCHEMAS[version]:
            raise damaged(place, "its tables are not those of a store")
        return True
    names = set(inspect(connection).get_table_names())
    if meta.name not in names:
        return False
    text = connection.execute(select(meta.c.value).where(meta.c.name == "schema_version")).scalar()
    known = isinstance(text, str) and text.isdecimal() and len(text) < 10
    _check_version(int(text or 0) if known else 0, place)
    if not set(metadata.tables) <= names:
        raise damaged(place, "a table is missing")
    return True


def _check_version(found: int, place: str) -> None:
    if found > SCHEMA_VERSION:
        raise StoreError(
            f"store {place}: written by a newer asmtune (schema {found}, this one "
            f"knows {SCHEMA_VERSION}); upgrade asmtune, {ELSEWHERE}"
        )
    if found not in SCHEMAS:
        raise damaged(place, f"schema version {found}")


class LoadedRow(NamedTuple, Generic[_T]):
    """The value that a row holds, or the reason why it cannot be used.

    Attributes:
        row: the row.
        value: None where the row is damaged.
        problem: why it is damaged; empty otherwise.
    """

    row: Row[Any]
    value: _T | None
    problem: str = ""

    @property
    def place(self) -> str:
        """Name the row for messages: the first digits of its digest, and its kernel."""
        digits = json_codec.printable(str(self.row.digest))[:DIGITS_SHOWN]
        return f"{digits} {json_codec.printable(str(self.row.kernel))}"


class Reading(NamedTuple, Generic[_T]):
    """A way to read rows of records.

    Attributes:
        columns: names of the columns that are read, after the row's id.
        read: checks a row and makes a value of it; outside of transactions.
        most: rows that one transaction reads.
    """

    columns: Sequence[str]
    read: Callable[[tuple[Any, ...]], _T]
    most: int

    def fetch(
        self, connection: Connection, table: Table, condition: ColumnElement[bool]
    ) -> Sequence[Row[Any]]:
        """Read the rows that match, at most some hundreds, in any order; within a transaction."""
        query = select(table.c.id, *(table.c[name] for name in self.columns))
        return connection.execute(query.where(condition)).all()

    def parse(self, row: Row[Any]) -> LoadedRow[_T]:
        """Check and read a row; what is wrong with it becomes its problem."""
        try:
            return LoadedRow(row, self.read(row[1:]))
        except InputError as error:
            return LoadedRow(row, None, str(error))


_ALL: Final = (*codec.HEAD, *codec.OUTCOMES)
WHOLE: Final = Reading(_ALL, codec.read_row, BATCH)
FASTEST: Final = Reading(_ALL, partial(codec.read_row, fastest=NEAREST), BATCH)
SUMMARIES: Final = Reading(codec.HEAD, RecordSummary.of_head, MANY)


def handles(
    connection: Connection, table: Table, condition: ColumnElement[bool]
) -> list[tuple[Any, ...]]:
    """List the ids of the rows that match, each with the digest of its key.

    They come by kernel and device, then as saved.
    """
    query = select(table.c.id, table.c.digest).where(condition)
    query = query.order_by(table.c.kernel, table.c.device, table.c.id)
    # Plain tuples, which Python's collector leaves alone.
    return [tuple(row) for row in connection.execute(query)]


def fetch_again(
    connection: Connection,
    reading: Reading[Any],
    table: Table,
    batch: Sequence[tuple[Any, ...]],
) -> Sequence[Row[Any]]:
    """Read the rows of some handles in their order, then what was saved in a record's place."""
    condition = table.c.id.in_([row_id for row_id, _ in batch])
    found = {row.id: row for row in reading.fetch(connection, table, condition)}
    again: Sequence[Row[Any]] = ()
    if table is keys and len(found) < len(batch):
        gone = [name for row_id, name in batch if row_id not in found]
        named = [name for name in gone if isinstance(name, str) and name.isascii()]
        again = reading.fetch(connection, table, table.c.digest.in_(named))
    # Sorted here: SQLite would copy whole rows to sort them, a fifth of what reading them takes.
    return [*(found[row_id] for row_id, _ in batch if row_id in found), *again]


def matching(table: Table, kernel: str | None, device: str | None) -> ColumnElement[bool]:
    """Return the condition for the rows of a kernel and a device; None matches any."""
    pairs = ((table.c.kernel, kernel), (table.c.device, device))
    return and_(true(), *(column == wanted for column, wanted in pairs if wanted is not None))


def of_key(table: Table, key: TuneKey) -> ColumnElement[bool]:
    """Return the condition for the rows of a key."""
    return table.c.digest == codec.key_digest(key)


def put(connection: Connection, batch: Sequence[dict[str, Any]]) -> None:
    """Write rows of records, at most `BATCH`, in place of those of the same keys and Triton.

    A record of another Triton stays while the kernel's source is the same. What was stored of the
    keys before they had a record is deleted.
    """
    # The last record of a key counts, where it comes twice for one Triton.
    rows = {(row["digest"], minor_version(row["triton"])): row for row in batch}
    sources = {row["digest"]: row["source"] for row in batch}
    query = select(keys.c.id, keys.c.digest, keys.c.triton, keys.c.source)
    replaced, are_kept = [], len(sources) < len(rows)
    for row_id, name, triton, source in connection.execute(query.where(keys.c.digest.in_(sources))):
        stays = source == sources[name] and (name, minor_version(str(triton))) not in rows
        are_kept |= stays
        replaced += [] if stays else [row_id]
    connection.execute(delete(keys).where(keys.c.id.in_(replaced)))
    connection.execute(delete(predictions).where(predictions.c.digest.in_(sources)))
    if are_kept:
        _let_keys_have_several(connection)
    connection.execute(insert(keys), [*rows.values()])


def _let_keys_have_several(connection: Connection) -> None:
    """Give tables of version 1 the index of version 2: theirs allows one record of a key."""
    if connection.dialect.name == "sqlite":
        if connection.exec_driver_sql("PRAGMA user_version").scalar_one() > 1:
            return
        connection.exec_driver_sql("PRAGMA user_version = 2")
    else:
        # Another process may be at it: the lock makes it wait, and then nothing is left to do.
        connection.exec_driver_sql("LOCK TABLE meta")
        known = connection.execute(select(meta.c.value).where(meta.c.name == "schema_version"))
        if known.scalar() != "1":
            return
    connection.execute(meta.update().values(value="2"))
    (index,) = (index for index in keys.indexes if index.unique)
    index.drop(connection)
    index.create(connection)


def delete_some(connection: Connection, table: Table, condition: ColumnElement[bool]) -> int:
    """Delete some hundreds of the rows that match; return how many."""
    ids = select(table.c.id).where(condition).limit(MANY)
    return connection.execute(delete(table).where(table.c.id.in_(ids))).rowcount


def valid(connection: Connection, key: TuneKey, now: Provenance) -> LoadedRow[TuneRecord] | None:
    """Load the row of a key's record where it is valid for `now`; else return None."""
    condition = and_(of_key(keys, key), keys.c.source == now.source, keys.c.space == now.space)
    found = map(WHOLE.parse, WHOLE.fetch(connection, keys, condition))
    return next((r for r in found if r.value and not differences(r.value.provenance, now)), None)


_INDEXED: Final = ("id", "shape", "dtypes", "device")


class Change(NamedTuple):
    """An index, empty where rows of it are gone, and rows that it lacks, at most `MANY`."""

    known: KeyIndex
    rows: Sequence[Row[Any]]


def behind(connection: Connection, kernel: str, index: KeyIndex) -> Change:
    """Read what an index lacks of a kernel's keys: no rows where it has them all."""
    own, read = keys.c.kernel == kernel, select(*(keys.c[name] for name in _INDEXED))
    sums = select(func.count(), func.coalesce(func.sum(keys.c.id), 0)).where(own)
    if tuple(map(int, connection.execute(sums).one())) == (len(index.ids), index.ids.sum()):
        return Change(index, ())
    query = read.where(own).order_by(keys.c.id).limit(MANY)
    newest = int(index.ids.max(initial=0))
    if rows := connection.execute(query.where(keys.c.id > newest)).all():
        return Change(index, rows)
    # Some are deleted, or were added by a transaction of a server that ended after a later one.
    return Change(KeyIndex(), connection.execute(query).all())
