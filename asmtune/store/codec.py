"""Tune records as JSON values and back, checked field by field on the way in.

The one form behind the store's rows and the reviewed files: plain numbers,
strings, booleans and nulls, so that loading it can execute nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NoReturn, TypeVar

from asmtune.config import Config
from asmtune.errors import InputError
from asmtune.fingerprint import canonical, digest
from asmtune.records import Failure, Measurement, Provenance, TuneKey, TuneRecord, to_json

_T = TypeVar("_T")

PROVENANCE_FIELDS: Final = ("source", "space", "triton", "torch", "asmtune", "driver", "date")
_TIMES: Final = ("median_us", "p20_us", "p80_us")
_SAMPLE_DECIMALS: Final = 3  # nanoseconds; event timers resolve less


def key_digest(key: TuneKey) -> str:
    """Identity of a key (64 hex digits), whatever the order of its mappings."""
    return digest(canonical(to_json(key)))


def config_text(config: Config) -> str:
    """A config's identity within a record: canonical JSON of its values."""
    return canonical(config.to_dict())


def winner_is_timed(record: TuneRecord) -> bool:
    """Whether the winner is among the measurements, by its values."""
    winner = config_text(record.winner)
    return any(config_text(m.config) == winner for m in record.measurements)


def record_to_json(record: TuneRecord, *, samples: str = "exact") -> dict[str, Any]:
    """A record as JSON values; the inverse of `record_from_json`.

    A config's `pre_hook` and `ir_override` are not part of it: code and files
    of one machine do not travel.

    Args:
        record: what to convert.
        samples: "exact", "rounded" (to 1 ns) or "none".
    """
    return {
        "key": {
            "kernel": record.key.kernel,
            "shape": dict(record.key.shape),
            "dtypes": dict(record.key.dtypes),
            "device": record.key.device,
        },
        "winner": record.winner.to_dict(),
        "provenance": {name: getattr(record.provenance, name) for name in PROVENANCE_FIELDS},
        "measurements": [_measurement_to_json(m, samples) for m in record.measurements],
        "failures": [
            {
                "config": config.to_dict(),
                "stage": failure.stage,
                "kind": failure.kind,
                "detail": failure.detail,
            }
            for config, failure in record.failures
        ],
    }


def _measurement_to_json(measurement: Measurement, samples: str) -> dict[str, Any]:
    value: dict[str, Any] = {"config": measurement.config.to_dict()}
    value |= {name: getattr(measurement, name) for name in _TIMES}
    if samples == "exact":
        value["samples_us"] = list(measurement.samples_us)
    elif samples == "rounded" and measurement.samples_us:
        value["samples_us"] = [round(t, _SAMPLE_DECIMALS) for t in measurement.samples_us]
    return value


def record_from_json(value: Any, where: str) -> TuneRecord:
    """The record that JSON values stand for.

    Args:
        value: what a JSON parser gave.
        where: what messages call it, such as "records[3]".

    Raises:
        InputError: a field is missing, unknown or malformed; names it.
    """
    fields = _fields(value, where, ("key", "winner", "provenance", "measurements", "failures"))
    return TuneRecord(
        key=_key(fields["key"], f"{where}.key"),
        winner=_config(fields["winner"], f"{where}.winner"),
        measurements=tuple(_each(fields["measurements"], f"{where}.measurements", _measurement)),
        provenance=_provenance(fields["provenance"], f"{where}.provenance"),
        failures=tuple(_each(fields["failures"], f"{where}.failures", _failure)),
    )


def parse_json(text: str | bytes) -> Any:
    """JSON without NaN, infinities and repeated names.

    Raises:
        ValueError: the text is not such JSON, or nested too deeply.
    """
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_unique)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number here")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError(f"a name is repeated among {shown(sorted(name for name, _ in pairs))}")
    return values


def printable(text: str) -> str:
    """Text that may come from a damaged file, without newlines and control codes."""
    return text if text.isprintable() else ascii(text)


def shown(value: Any) -> str:
    """A value as messages show it: one line of 60 characters at most."""
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def fault(where: str, text: str) -> InputError:
    """The error of a malformed field, in one line even where a name holds newlines."""
    return InputError(f"{printable(where)}: {text}")


def expected(what: str, where: str, value: Any) -> InputError:
    """The error of a field that is not what it should be."""
    return fault(where, f"expected {what}, got {shown(value)}")


def _fields(
    value: Any, where: str, required: Iterable[str], optional: Iterable[str] = ()
) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise expected("an object", where, value)
    required = tuple(required)
    for name in required:
        if name not in value:
            raise fault(where, f"field {name!r} is missing")
    unknown = [name for name in value if name not in (*required, *optional)]
    if unknown:
        raise fault(where, f"unknown field {shown(unknown[0])}")
    return value


def _each(value: Any, where: str, read: Callable[[Any, str], _T]) -> list[_T]:
    if not isinstance(value, list):
        raise expected("a list", where, value)
    return [read(item, f"{where}[{index}]") for index, item in enumerate(value)]


def _key(value: Any, where: str) -> TuneKey:
    fields = _fields(value, where, ("kernel", "shape", "dtypes", "device"))
    shape = _named(fields["shape"], f"{where}.shape")
    dtypes = _named(fields["dtypes"], f"{where}.dtypes")
    return TuneKey(
        kernel=_text(fields["kernel"], f"{where}.kernel"),
        shape={name: _scalar(item, f"{where}.shape.{name}") for name, item in shape.items()},
        dtypes={name: _text(item, f"{where}.dtypes.{name}") for name, item in dtypes.items()},
        device=_text(fields["device"], f"{where}.device"),
    )


def _provenance(value: Any, where: str) -> Provenance:
    fields = _fields(value, where, PROVENANCE_FIELDS)
    return Provenance(**{name: _text(fields[name], f"{where}.{name}") for name in fields})


def _measurement(value: Any, where: str) -> Measurement:
    fields = _fields(value, where, ("config", *_TIMES), ("samples_us",))
    median, p20, p80 = (_time(fields[name], f"{where}.{name}") for name in _TIMES)
    if median == 0:
        raise expected("a time above 0", f"{where}.median_us", median)
    samples = _each(fields.get("samples_us", []), f"{where}.samples_us", _time)
    return Measurement(_config(fields["config"], f"{where}.config"), median, p20, p80, (*samples,))


def _failure(value: Any, where: str) -> tuple[Config, Failure]:
    fields = _fields(value, where, ("config", "stage", "kind", "detail"))
    texts = (_text(fields[name], f"{where}.{name}") for name in ("stage", "kind", "detail"))
    return _config(fields["config"], f"{where}.config"), Failure(*texts)


def _config(value: Any, where: str) -> Config:
    values = _named(value, where)
    for name, least in (("num_warps", 1), ("num_stages", 0), ("num_ctas", 1), ("maxnreg", 1)):
        if name not in values:
            if name in ("num_warps", "num_stages"):
                raise fault(where, f"field {name!r} is missing")
            continue
        number = values[name]
        if type(number) is not int or not least <= number < 1 << 31:
            raise expected(f"a whole number of {least} or more", f"{where}.{name}", number)
    return Config.from_dict({name: _scalar(v, f"{where}.{name}") for name, v in values.items()})


def _named(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise expected("an object", where, value)
    for name in value:
        _text(name, f"{where}: name")
    return value


def _scalar(value: Any, where: str) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 64:
        return int(value)
    if isinstance(value, float) and abs(value) <= sys.float_info.max:
        return float(value)
    if isinstance(value, str):
        return _text(value, where)
    raise expected("a finite number, a string, a boolean or null", where, value)


def _text(value: Any, where: str) -> str:
    try:
        if isinstance(value, str) and value.encode() is not None:
            return str(value)
    except UnicodeEncodeError:
        pass
    raise expected("text", where, value)


def _time(value: Any, where: str) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= sys.float_info.max:
        raise expected("a finite time of 0 or more, in microseconds", where, value)
    return float(value)
