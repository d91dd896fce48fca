"""Tune records as rows of the store's tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, insert, select, true

from asmtune.base import json_checks
from asmtune.base.errors import InputError
from asmtune.base.fingerprint import canonical, digest
from asmtune.core.records.tuned import Provenance, TuneKey, TuneRecord
from asmtune.store import codec
from asmtune.store.lookup import differences
from asmtune.store.tables import failures, keys, timings


@dataclass(frozen=True)
class LoadedRecord:
    """One key's rows: a record, or what is wrong with them.

    Attributes:
        id: of the row in `keys`.
        digest: the key's identity as the row has it, printable.
        kernel: the row's kernel, printable.
        record: None where the rows do not parse.
        problem: why they do not; empty otherwise.
    """

    id: int
    digest: str
    kernel: str
    record: TuneRecord | None
    problem: str


def matching(kernel: str | None, device: str | None) -> ColumnElement[bool]:
    """The condition on `keys` that a kernel and a device set; None is any."""
    wanted: list[ColumnElement[bool]] = [true()]
    if kernel is not None:
        wanted.append(keys.c.kernel == kernel)
    if device is not None:
        wanted.append(keys.c.device == device)
    return and_(*wanted)


def put(connection: Connection, record: TuneRecord) -> None:
    """Writes a record's rows in place of those of the same key."""
    value = codec.record_to_json(record)
    key = value["key"]
    identity = codec.key_digest(record.key)
    drop(connection, keys.c.digest == identity)
    row = {
        "digest": identity,
        "kernel": key["kernel"],
        "shape": canonical(key["shape"]),
        "dtypes": canonical(key["dtypes"]),
        "device": key["device"],
        "winner": canonical(value["winner"]),
        **value["provenance"],
        "seal": seal(value),
        "head": codec.head_seal(codec.Head(record.key, record.winner, record.provenance), None),
    }
    inserted = connection.execute(insert(keys).values(row)).inserted_primary_key
    owner = inserted[0] if inserted else None
    _put_each(connection, owner, timings, value["measurements"])
    _put_each(connection, owner, failures, value["failures"])


def seal(value: Any) -> str:
    """Digest of JSON json_checks, to tell later that they are still those written."""
    return digest(canonical(value))


def standing(connection: Connection, key: TuneKey, now: Provenance) -> LoadedRecord | None:
    """The row of a key whose record holds for how it would be tuned now."""
    condition = and_(
        keys.c.digest == codec.key_digest(key),
        keys.c.source == now.source,
        keys.c.space == now.space,
    )
    for loaded in load(connection, condition):
        if loaded.record is not None and not differences(loaded.record.provenance, now):
            return loaded
    return None


def _put_each(connection: Connection, owner: Any, table: Any, items: list[dict[str, Any]]) -> None:
    rows = []
    for position, item in enumerate(items):
        row = {"key_id": owner, "position": position, **item, "config": canonical(item["config"])}
        if "samples_us" in row:
            row["samples"] = canonical(row.pop("samples_us"))
        rows.append(row)
    if rows:
        connection.execute(insert(table), rows)


def drop(connection: Connection, condition: ColumnElement[bool]) -> int:
    """Deletes the keys under a condition and all that belongs to them; how many keys."""
    owners = select(keys.c.id).where(condition)
    connection.execute(delete(timings).where(timings.c.key_id.in_(owners)))
    connection.execute(delete(failures).where(failures.c.key_id.in_(owners)))
    return connection.execute(delete(keys).where(condition)).rowcount


def load(connection: Connection, condition: ColumnElement[bool]) -> list[LoadedRecord]:
    """The records under a condition, by kernel, device and digest."""
    # Sorted here: databases differ in how they order text.
    found = sorted(
        connection.execute(select(keys).where(condition)),
        key=lambda row: (str(row.kernel), str(row.device), str(row.digest)),
    )
    timed = _by_owner(connection, timings, condition)
    failed = _by_owner(connection, failures, condition)
    return [_loaded(row, timed.get(row.id, ()), failed.get(row.id, ())) for row in found]


def _by_owner(
    connection: Connection, table: Any, condition: ColumnElement[bool]
) -> dict[int, list[Row[Any]]]:
    owners = select(keys.c.id).where(condition)
    query = select(table).where(table.c.key_id.in_(owners))
    groups: dict[int, list[Row[Any]]] = {}
    for row in connection.execute(query.order_by(table.c.key_id, table.c.position)):
        groups.setdefault(row.key_id, []).append(row)
    return groups


def orphans(connection: Connection) -> int:
    """How many timings and failures belong to no key."""
    known = select(keys.c.id)
    count = 0
    for table in (timings, failures):
        query = select(table.c.key_id).where(table.c.key_id.not_in(known))
        count += len(connection.execute(query).all())
    return count


def _loaded(row: Row[Any], timed: Sequence[Row[Any]], failed: Sequence[Row[Any]]) -> LoadedRecord:
    record, problem = None, ""
    try:
        record = codec.record_from_json(_row_json(row, timed, failed), "row")
        if codec.key_digest(record.key) != row.digest:
            record, problem = None, "its key does not match its digest"
        elif row.seal is not None and row.seal != seal(codec.record_to_json(record)):
            record, problem = None, "its values do not match its seal"
    except InputError as error:
        problem = str(error)
    shown, kernel = (json_checks.printable(str(value)) for value in (row.digest, row.kernel))
    return LoadedRecord(row.id, shown, kernel, record, problem)


def _row_json(row: Row[Any], timed: Sequence[Row[Any]], failed: Sequence[Row[Any]]) -> Any:
    return {
        "key": {
            "kernel": row.kernel,
            "shape": json_checks.json_of(row.shape, "row.shape"),
            "dtypes": json_checks.json_of(row.dtypes, "row.dtypes"),
            "device": row.device,
        },
        "winner": json_checks.json_of(row.winner, "row.winner"),
        "provenance": {name: getattr(row, name) for name in codec.PROVENANCE_FIELDS},
        "measurements": [
            {
                "config": json_checks.json_of(item.config, f"timing {item.position}: config"),
                "median_us": item.median_us,
                "p20_us": item.p20_us,
                "p80_us": item.p80_us,
                "samples_us": json_checks.json_of(item.samples, f"timing {item.position}: samples"),
            }
            for item in timed
        ],
        "failures": [
            {
                "config": json_checks.json_of(item.config, f"failure {item.position}: config"),
                "stage": item.stage,
                "kind": item.kind,
                "detail": item.detail,
            }
            for item in failed
        ],
    }
