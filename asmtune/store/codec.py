"""Tune records to JSON values and back; each field is checked when it is read.

The store's rows and the reviewed files share this form: plain numbers, strings, booleans and
nulls, so that loading it can execute nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Any, Final

from asmtune.base import json_codec
from asmtune.base.errors import InputError
from asmtune.base.fingerprint import canonical, digest
from asmtune.base.json_codec import JsonCodec
from asmtune.core.config import ALTERNATIVE, Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement, TuneKey, TuneRecord

_JSON: Final = ("shape", "dtypes", "winner")
_KEY: Final = ("kernel", "shape", "dtypes", "device")
_PROVENANCE: Final = ("source", "space", "triton", "torch", "asmtune", "driver", "date")
_TIMES: Final = ("median_us", "p20_us", "p80_us")
SAMPLE_DECIMALS: Final = 3  # nanoseconds; event timers resolve less

_SUMS: Final = ("timed", "failed", "median_us", "tried", "outcomes")
HEAD: Final = ("digest", *_KEY, "winner", *_PROVENANCE, *_SUMS, "seal")
"""Columns that a row begins with: all that a launch or a listing needs. `outcomes` is the digest of
the columns `OUTCOMES`, and the seal that of all others."""

OUTCOMES: Final = ("measurements", "failures", "samples")
"""Columns that end a row. Samples are most of a record, and apart: few readers parse them."""


def key_digest(key: TuneKey) -> str:
    """Return a key's identity (64 hex digits), whatever the order of its mappings."""
    return digest(canonical(key_to_json(key)))


def row_of(record: TuneRecord, *, checked: bool = False) -> dict[str, Any]:
    """Make a record's row.

    Args:
        record: the record.
        checked: whether `record_from_json` has made it, so that it need not be checked.

    Raises:
        InputError: a value cannot be stored; the message names it.
    """
    value = record_to_json(record)
    if not checked:
        record_from_json(value, f"{record.key.kernel}: record")  # as it will be read
    value["samples"] = [timing.pop("samples_us") for timing in value["measurements"]]
    texts = {name: canonical(value[name]) for name in OUTCOMES}
    median_us = record.median_us
    columns = {
        **value["key"],
        "digest": key_digest(record.key),
        "shape": canonical(value["key"]["shape"]),
        "dtypes": canonical(value["key"]["dtypes"]),
        "winner": canonical(value["winner"]),
        **value["provenance"],
        "timed": len(record.measurements),
        "failed": len(record.failures),
        "median_us": None if median_us is None else float(median_us),
        "tried": canonical(sorted(record.tried)),
        "outcomes": digest(*texts.values()),
    }
    columns["seal"] = _seal(tuple(columns[name] for name in HEAD[:-1]))
    return columns | texts


def _seal(values: tuple[Any, ...]) -> str:
    return digest(ascii(values))  # a listing spends a fifth of its time here: JSON takes twice that


def check_seal(head: tuple[Any, ...]) -> None:
    """Check the columns `HEAD` of a row against their seal.

    Raises:
        InputError: a value has changed since they were written.
    """
    if head[-1] != _seal(head[:-1]):
        raise InputError("its values do not match its seal")


def read_head(head: tuple[Any, ...], measurements: Any = (), failures: Any = ()) -> TuneRecord:
    """Check the columns `HEAD` of a row, and read them as a record.

    Args:
        head: the columns.
        measurements: JSON values of the record's timings.
        failures: JSON values of its failures.

    Raises:
        InputError: the row has changed since it was written, or holds no record.
    """
    check_seal(head)
    row = dict(zip(HEAD, head, strict=True))
    row |= {name: json_codec.json_of(row[name], f"row.{name}") for name in _JSON}
    value = {
        "key": {name: row[name] for name in _KEY},
        "winner": row["winner"],
        "provenance": {name: row[name] for name in _PROVENANCE},
        "measurements": [*measurements],
        "failures": [*failures],
    }
    record = record_from_json(value, "row")
    if row["digest"] != key_digest(record.key):
        raise InputError("its key does not match its digest")
    return record


def read_row(row: tuple[Any, ...], *, fastest: int | None = None) -> TuneRecord:
    """Check all columns of a row, and read them as a record.

    Args:
        row: the columns `HEAD` and `OUTCOMES`.
        fastest: number of timings that are read, the fastest, without samples and failures; all
            where it is None. Six of a hundred with 60 samples each take an eighth of the time.

    Raises:
        InputError: as `read_head`.
    """
    head, texts = row[: len(HEAD)], row[len(HEAD) :]
    sound = all(isinstance(text, str) and text.isascii() for text in texts)
    if not sound or digest(*texts) != head[HEAD.index("outcomes")]:
        raise InputError("its outcomes do not match their seal")
    timings, *others = (
        json_codec.json_of(t, "row") for t in (texts if fastest is None else texts[:1])
    )
    if not all(isinstance(values, list) for values in (timings, *others)):
        raise InputError("its outcomes are no lists")
    if fastest is not None:
        return read_head(head, heapq.nsmallest(fastest, timings, key=_median_us))
    failures, samples = others
    pairs = zip(timings, samples, strict=False)
    timings = [{**t, "samples_us": own} if isinstance(t, dict) else t for t, own in pairs]
    return read_head(head, timings, failures)


def _median_us(timing: Any) -> float:
    """Return a timing's median; what is no timing comes first, where reading it fails."""
    found = timing.get("median_us") if isinstance(timing, dict) else None
    return found if isinstance(found, int | float) else 0.0


def read_tried(text: Any) -> frozenset[str]:
    """Read the names of alternatives in a column; raises as `record_from_json`."""
    return frozenset(_CODEC.read(tuple[str, ...], json_codec.json_of(text, "tried"), "tried"))


def config_text(config: Config) -> str:
    """Return a config's identity within a record: canonical JSON of its values."""
    return canonical(config.to_dict())


def winner_is_timed(record: TuneRecord) -> bool:
    """Return whether the winner is among the measurements, by its values."""
    winner, text = record.winner.to_dict(), config_text(record.winner)
    alike = (m.config for m in record.measurements if m.config.to_dict() == winner)
    return any(config_text(config) == text for config in alike)  # 1, 1.0 and True are alike


def record_to_json(record: TuneRecord, *, samples: str = "exact") -> dict[str, Any]:
    """Convert a record to JSON values; the inverse of `record_from_json`.

    A config's `pre_hook` is left out, and of its `ir_override` only the file's name is written:
    code and files of one machine do not travel.

    Args:
        record: record to convert.
        samples: "exact", "rounded" (to 1 ns) or "none".
    """
    return {
        "key": key_to_json(record.key),
        "winner": record.winner.to_dict(),
        "provenance": dict(vars(record.provenance)),
        "measurements": [measurement_to_json(m, samples) for m in record.measurements],
        "failures": [failure_to_json(config, failure) for config, failure in record.failures],
    }


def key_to_json(key: TuneKey) -> dict[str, Any]:
    """Convert a key to JSON values."""
    return {**vars(key), "shape": dict(key.shape), "dtypes": dict(key.dtypes)}


def failure_to_json(config: Config, failure: Failure) -> dict[str, Any]:
    """Convert a failed config to JSON values; the inverse of `failure_from_json`."""
    # PostgreSQL's text cannot hold NUL, which a crashed compiler may well print.
    texts = {
        name: getattr(failure, name).replace("\0", "\\0") for name in ("stage", "kind", "detail")
    }
    return {"config": config.to_dict(), **texts}


def measurement_to_json(measurement: Measurement, samples: str = "exact") -> dict[str, Any]:
    """Convert a measurement to JSON values; `samples` as `record_to_json` takes it."""
    value: dict[str, Any] = {"config": measurement.config.to_dict()}
    value |= {name: getattr(measurement, name) for name in _TIMES}
    if samples == "exact":
        value["samples_us"] = list(measurement.samples_us)
    elif samples == "rounded" and measurement.samples_us:
        value["samples_us"] = [round(t, SAMPLE_DECIMALS) for t in measurement.samples_us]
    return value


def record_from_json(value: Any, where: str) -> TuneRecord:
    """Read a record from JSON values.

    Args:
        value: value from a JSON parser.
        where: its name in messages, such as "records[3]".

    Raises:
        InputError: a field is missing, unknown or malformed; names it.
    """
    return _CODEC.read(TuneRecord, value, where)


def measurement_from_json(value: Any, where: str) -> Measurement:
    """Read a measurement from JSON values; raises as `record_from_json`."""
    if isinstance(value, Mapping):
        value = {"samples_us": [], "error": None, **value}
    measurement: Measurement = _CODEC.read_fields(Measurement, value, where)
    if measurement.median_us == 0:
        raise json_codec.expected("a time above 0", f"{where}.median_us", measurement.median_us)
    return measurement


def failure_from_json(value: Any, where: str) -> tuple[Config, Failure]:
    """Read a failed config from JSON values; raises as `record_from_json`."""
    fields = json_codec.fields_of(value, where, ("config", "stage", "kind", "detail"))
    texts = {name: text for name, text in fields.items() if name != "config"}
    return config_from_json(fields["config"], f"{where}.config"), _CODEC.read(Failure, texts, where)


def config_from_json(value: Any, where: str) -> Config:
    """Read a config from JSON values; raises as `record_from_json`."""
    named = json_codec.scalars_of(value, where)
    for name, least in (("num_warps", 1), ("num_stages", 0), ("num_ctas", 1), ("maxnreg", 1)):
        if name not in named:
            if name in ("num_warps", "num_stages"):
                raise json_codec.fault(where, f"field {name!r} is missing")
            continue
        number = named[name]
        if type(number) is not int or not least <= number < 1 << 31:
            raise json_codec.expected(
                f"a whole number of {least} or more", f"{where}.{name}", number
            )
    if not isinstance(named.get("ir_override", ""), str):
        raise json_codec.expected("a file's name", f"{where}.ir_override", named["ir_override"])
    named_function = named.get(ALTERNATIVE, "a name")
    if not isinstance(named_function, str) or not named_function:
        raise json_codec.expected("a function's name", f"{where}.{ALTERNATIVE}", named_function)
    return Config.from_dict(named)


_CODEC: Final = JsonCodec(
    decoders={
        Any: json_codec.scalar_of,
        str: json_codec.text_of,
        float: json_codec.time_of,
        Config: config_from_json,
        Measurement: measurement_from_json,
        tuple[Config, Failure]: failure_from_json,
    }
)
