"""Configs that the model chose and nobody has timed, as rows of `predictions`.

They are kept so that the next process need not predict again. No record is made of
them: they teach no search, are not exported, and go when their key is tuned.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, insert, select, true

from asmtune.base import json_checks
from asmtune.base.errors import InputError
from asmtune.base.fingerprint import canonical
from asmtune.store import codec
from asmtune.store.lookup import DIGITS_SHOWN, StoredPrediction, StoreFinding
from asmtune.store.tables import predictions


def form(prediction: StoredPrediction) -> dict[str, Any]:
    """A prediction as a row.

    Raises:
        InputError: a value cannot be kept; names it.
    """
    where = f"{prediction.key.kernel}: prediction"
    value = codec.head_to_json(codec.Head(prediction.key, prediction.config, prediction.provenance))
    head = codec.head_from_json(value, where)
    key, us = value["key"], prediction.predicted_us
    if us is not None:
        us = json_checks.time_of(us, f"{where}.predicted_us")
    return {
        "digest": codec.key_digest(head.key),
        "kernel": key["kernel"],
        "shape": canonical(key["shape"]),
        "dtypes": canonical(key["dtypes"]),
        "device": key["device"],
        "winner": canonical(value["winner"]),
        "predicted_us": us,
        **value["provenance"],
        "seal": codec.head_seal(head, us),
    }


def put(connection: Connection, row: dict[str, Any]) -> None:
    """Writes a row that `form` has made in place of that of the same key."""
    drop(connection, predictions.c.digest == row["digest"])
    connection.execute(insert(predictions).values(row))


def matching(kernel: str | None, device: str | None) -> ColumnElement[bool]:
    """The condition that a kernel and a device set; None is any."""
    wanted: list[ColumnElement[bool]] = [true()]
    if kernel is not None:
        wanted.append(predictions.c.kernel == kernel)
    if device is not None:
        wanted.append(predictions.c.device == device)
    return and_(*wanted)


def drop(connection: Connection, condition: ColumnElement[bool]) -> int:
    """Deletes the rows under a condition; how many."""
    return connection.execute(delete(predictions).where(condition)).rowcount


def load(
    connection: Connection, condition: ColumnElement[bool]
) -> list[StoredPrediction | StoreFinding]:
    """The rows under a condition, by kernel, device and digest; what is wrong with a damaged."""
    found = sorted(
        connection.execute(select(predictions).where(condition)),
        key=lambda row: (str(row.kernel), str(row.device), str(row.digest)),
    )
    return [_loaded(row) for row in found]


def _loaded(row: Row[Any]) -> StoredPrediction | StoreFinding:
    digest, kernel = (json_checks.printable(str(value)) for value in (row.digest, row.kernel))
    place = f"{digest[:DIGITS_SHOWN]} {kernel}"
    try:
        head = codec.head_of(row._asdict(), "prediction")
    except InputError as error:
        return StoreFinding(place, str(error))
    if row.digest != codec.key_digest(head.key):
        return StoreFinding(place, "prediction: its key does not match its digest")
    if row.seal != codec.head_seal(head, row.predicted_us):
        return StoreFinding(place, "prediction: its values do not match its seal")
    return StoredPrediction(head.key, head.winner, row.predicted_us, head.provenance)
