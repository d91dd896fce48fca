"""The row of a flight: claimed, kept, taken over and let go, each in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sqlalchemy import ColumnElement, Connection, and_, delete, insert, select, update

from asmtune.base.fingerprint import digest
from asmtune.core.records.tuned import Provenance, TuneKey, TuneRecord
from asmtune.store import codec, process_ids, rows
from asmtune.store.database import Store
from asmtune.store.lookup import minor
from asmtune.store.tables import flights


@dataclass(frozen=True)
class LeaseRequest:
    """What a process wants to know: a key's config.

    Attributes:
        key: what is about to be launched.
        expected: how it would be tuned now.
        force: whether a record that holds already is to be replaced.
        on_wait: told "host:process" of who tunes the key, once, before waiting for it.
    """

    key: TuneKey
    expected: Provenance
    force: bool = False
    on_wait: Callable[[str], None] | None = None

    @property
    def name(self) -> str:
        """The flight's: processes with other sources, spaces or Tritons do not meet in it."""
        now = self.expected
        return digest(codec.key_digest(self.key), now.source, now.space, minor(now.triton))


@dataclass(frozen=True)
class Holder:
    """A flight's row: whose it is, and how often that has beaten."""

    owner: str
    beats: int


@dataclass
class Claim:
    """What a process knows of a key and its flight, as of its last look.

    Attributes:
        request: what is wanted.
        owner: names this claim alone.
        replaced: id of the record to be replaced although it holds.
        record: what holds for the key.
        held: who holds the flight; None where nobody does.
    """

    request: LeaseRequest
    owner: str = field(default_factory=process_ids.new_owner)
    replaced: int | None = None
    record: TuneRecord | None = None
    held: Holder | None = None

    @property
    def mine(self) -> bool:
        """Whether the flight is this claim's, and nothing has been tuned yet."""
        return self.record is None and self.held is not None and self.held.owner == self.owner

    def start(self, store: Store) -> None:
        """Notes the record that is to be replaced.

        Raises:
            StoreError: the store cannot be read.
        """
        if self.request.force:
            there = store.transact(self._standing)
            self.replaced = None if there is None else there.id

    def look(self, store: Store) -> None:
        """Reads the key's record and the flight.

        Raises:
            StoreError: the store cannot be read.
        """
        store.transact(self._look)

    def take(self, store: Store) -> None:
        """Makes the flight this claim's, if nothing has changed since the last look.

        Raises:
            StoreError: the store cannot be written.
        """
        seen = self.held

        def work(connection: Connection) -> None:
            self._look(connection)
            if self.record is None and not self.mine and self.held == seen:
                connection.execute(delete(flights).where(self._flight()))
                row = {"digest": self.request.name, "owner": self.owner, "beats": 0}
                connection.execute(insert(flights).values(row))
                self.held = Holder(self.owner, 0)

        store.transact(work, writes=True)

    def beat(self, store: Store) -> bool:
        """Raises the counter; False where the flight is no longer this claim's.

        Raises:
            StoreError: the store cannot be written.
        """
        raised = update(flights).where(self._own()).values(beats=flights.c.beats + 1)
        return store.transact(lambda c: c.execute(raised).rowcount == 1, writes=True)

    def release(self, store: Store) -> None:
        """Deletes the row, unless another process has taken it over.

        Raises:
            StoreError: the store cannot be written.
        """
        store.transact(lambda c: c.execute(delete(flights).where(self._own())), writes=True)

    def _standing(self, connection: Connection) -> rows.LoadedRecord | None:
        return rows.standing(connection, self.request.key, self.request.expected)

    def _look(self, connection: Connection) -> None:
        there = self._standing(connection)
        self.record = None if there is None or there.id == self.replaced else there.record
        row = connection.execute(select(flights).where(self._flight())).first()
        self.held = None
        # A damaged row counts for none: whoever takes the flight replaces it.
        if row is not None and isinstance(row.owner, str) and isinstance(row.beats, int):
            self.held = Holder(row.owner, row.beats)

    def _flight(self) -> ColumnElement[bool]:
        return flights.c.digest == self.request.name

    def _own(self) -> ColumnElement[bool]:
        return and_(self._flight(), flights.c.owner == self.owner)
