"""Timings and failures of runs that have not ended, as rows of `trials`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, insert, select, true

from asmtune.base import json_checks
from asmtune.base.errors import InputError
from asmtune.base.fingerprint import canonical
from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement, Provenance, TuneKey
from asmtune.store import codec, rows
from asmtune.store.lookup import DIGITS_SHOWN, Remembered, Unfinished, reusable
from asmtune.store.tables import trials

Outcome = Measurement | tuple[Config, Failure]

_CHUNK = 500  # ids in one statement; SQLite takes some 32,000


@dataclass(frozen=True)
class StoredTrial:
    """A sound row; key, source, triton and date as in `Unfinished`."""

    key: TuneKey
    source: str
    triton: str
    date: str
    outcome: Outcome


@dataclass(frozen=True)
class LoadedTrial:
    """One row: a trial, or what is wrong with it.

    Attributes:
        id: of the row.
        place: digits of the key's identity and the kernel, printable.
        trial: None where the row is damaged.
        problem: why it is; empty otherwise.
    """

    id: int
    place: str
    trial: StoredTrial | None
    problem: str = ""


def form(
    key: TuneKey,
    made: Provenance,
    measurements: Iterable[Measurement],
    failures: Iterable[tuple[Config, Failure]],
) -> list[dict[str, Any]]:
    """Outcomes of a key as rows.

    Raises:
        InputError: a value cannot be kept; names it.
    """
    where = f"{key.kernel}: trial"
    head = _head(codec.key_from_json(codec.key_to_json(key), f"{where}.key"))
    for name in ("source", "triton", "date"):
        head[name] = json_checks.text_of(getattr(made, name), f"{where}.{name}")
    outcomes = [codec.measurement_to_json(m) for m in measurements]
    outcomes += [codec.failure_to_json(config, failure) for config, failure in failures]
    return [_row(head, _to_json(_outcome(value, where))) for value in outcomes]


def _head(key: TuneKey) -> dict[str, Any]:
    return {
        "digest": codec.key_digest(key),
        "kernel": key.kernel,
        "shape": canonical(dict(key.shape)),
        "dtypes": canonical(dict(key.dtypes)),
        "device": key.device,
    }


def _row(head: dict[str, Any], outcome: Any) -> dict[str, Any]:
    row = {**head, "outcome": canonical(outcome)}
    return {**row, "seal": rows.seal(row)}


def _outcome(value: Any, where: str) -> Outcome:
    if isinstance(value, dict) and "stage" in value:
        return codec.failure_from_json(value, where)
    return codec.measurement_from_json(value, where)


def _to_json(outcome: Outcome) -> Any:
    if isinstance(outcome, Measurement):
        return codec.measurement_to_json(outcome)
    return codec.failure_to_json(*outcome)


def put(connection: Connection, formed: Sequence[dict[str, Any]]) -> None:
    """Adds rows that `form` has made."""
    if formed:
        connection.execute(insert(trials), list(formed))


def matching(kernel: str | None, device: str | None) -> ColumnElement[bool]:
    """The condition that a kernel and a device set; None is any."""
    wanted: list[ColumnElement[bool]] = [true()]
    if kernel is not None:
        wanted.append(trials.c.kernel == kernel)
    if device is not None:
        wanted.append(trials.c.device == device)
    return and_(*wanted)


def drop(connection: Connection, condition: ColumnElement[bool]) -> int:
    """Deletes the rows under a condition; how many."""
    return connection.execute(delete(trials).where(condition)).rowcount


def drop_ids(connection: Connection, ids: Sequence[int]) -> None:
    """Deletes rows by their ids."""
    for start in range(0, len(ids), _CHUNK):
        drop(connection, trials.c.id.in_(ids[start : start + _CHUNK]))


def load(connection: Connection, condition: ColumnElement[bool]) -> list[LoadedTrial]:
    """The rows under a condition, oldest first."""
    query = select(trials).where(condition).order_by(trials.c.id)
    return [_loaded(row) for row in connection.execute(query)]


def _loaded(row: Row[Any]) -> LoadedTrial:
    trial, problem = None, ""
    try:
        trial = _trial(row)
    except InputError as error:
        problem = str(error)
    digest, kernel = (json_checks.printable(str(value)) for value in (row.digest, row.kernel))
    return LoadedTrial(row.id, f"{digest[:DIGITS_SHOWN]} {kernel}", trial, problem)


def _trial(row: Row[Any]) -> StoredTrial:
    texts = {
        name: json_checks.text_of(value, f"trial.{name}")
        for name, value in row._mapping.items()
        if name != "id"
    }
    named = {
        name: json_checks.json_of(texts[name], f"trial.{name}") for name in ("shape", "dtypes")
    }
    key = codec.key_from_json({**named, "kernel": row.kernel, "device": row.device}, "trial")
    outcome = _outcome(json_checks.json_of(row.outcome, "trial.outcome"), "trial")
    if texts.pop("seal") != rows.seal(texts):
        raise json_checks.fault("trial", "its values do not match its seal")
    return StoredTrial(key, row.source, row.triton, row.date, outcome)


def merged(earlier: Iterable[Outcome], later: Iterable[StoredTrial], now: Provenance) -> Remembered:
    """What still holds, the newest outcome of each config.

    Args:
        earlier: of a record whose space alone differs.
        later: of runs not yet ended, oldest first.
        now: how the key would be tuned.
    """
    newest: dict[str, Outcome] = {}
    held = [trial.outcome for trial in later if reusable(trial.source, trial.triton, now)]
    for outcome in (*earlier, *held):
        config = outcome.config if isinstance(outcome, Measurement) else outcome[0]
        newest[codec.config_text(config)] = outcome
    found = newest.values()
    return Remembered(
        tuple(outcome for outcome in found if isinstance(outcome, Measurement)),
        tuple(outcome for outcome in found if not isinstance(outcome, Measurement)),
    )


def unfinished(found: Iterable[StoredTrial]) -> list[Unfinished]:
    """The runs that trials come from, by kernel, device and key."""
    runs: dict[tuple[str, str, str], list[StoredTrial]] = {}
    for trial in found:
        run = (codec.key_digest(trial.key), trial.source, trial.triton)
        runs.setdefault(run, []).append(trial)
    made = [_run(run) for run in runs.values()]
    return sorted(made, key=lambda run: (run.key.kernel, run.key.device, codec.key_digest(run.key)))


def _run(run: Sequence[StoredTrial]) -> Unfinished:
    timed = sum(isinstance(trial.outcome, Measurement) for trial in run)
    date = max(trial.date for trial in run)
    return Unfinished(run[0].key, run[0].source, run[0].triton, timed, len(run) - timed, date)
