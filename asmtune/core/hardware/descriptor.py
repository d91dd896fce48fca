"""Descriptors read from JSON, with every field checked."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from typing import Any, Final

from asmtune.base.errors import TargetError
from asmtune.base.text import did_you_mean
from asmtune.core.hardware.model import ARCH, Figure, Target, label, short

KINDS = ("specified", "measured", "derived", "driver", "architecture", "user")
"""Kinds of source of a figure."""

_MAY_BE_ZERO = frozenset({"shared_reserved_bytes_per_block"})


def parse_target(text: str, where: str) -> Target:
    """Read a descriptor from JSON text and check it; `where` names it in messages.

    Raises:
        TargetError: The text is not JSON, or a field is missing, unknown, of the wrong type, or
            beyond what any device has.
    """
    return target_of(_parse_json(text, where), where)


def target_of(data: Mapping[str, object], where: str) -> Target:
    """Check the fields of a descriptor, and make its target.

    Raises:
        TargetError: as `parse_target`.
    """
    known = {f.name: f for f in fields(Target) if f.name != "figures"}
    for name in data:
        if name not in known:
            hint = did_you_mean(name, known)
            raise TargetError(f"{where}: unknown field {short(name)}{hint}")
    reader = _Reader(where)
    values: dict[str, Any] = {}
    for name, f in known.items():
        if name in data:
            values[name] = reader.read(name, str(f.type).removesuffix(" | None"), data[name])
        elif f.default is MISSING and f.default_factory is MISSING:
            raise TargetError(f"{where}: field {name!r} is missing; every target states it")
    target = Target(**values, figures=reader.figures)
    _check_arch(target, where)
    _check_sizes(target, where)
    return target


class _Reader:
    """Turns JSON values into field values; `figures` keeps each number with its source."""

    def __init__(self, where: str) -> None:
        self._where = where
        self.figures: dict[str, Figure] = {}

    def read(self, name: str, kind: str, raw: object) -> object:
        """Read one field; `kind` is its annotation in `Target`, without "| None"."""
        if kind == "str":
            return self._text(name, raw)
        if kind == "tuple[str, ...]":
            if not isinstance(raw, list):
                raise self._error(name, "a list of texts", raw)
            return tuple(self._text(f"{name}[{i}]", item) for i, item in enumerate(raw))
        if kind == "Mapping[str, float]":
            if not isinstance(raw, dict) or not raw:
                raise self._error(name, "an object with a rate for each type", raw)
            return {key: self._number(f"{name}.{key}", raw[key], whole=False) for key in raw}
        return self._number(name, raw, whole=kind == "int")

    def _number(self, name: str, raw: object, *, whole: bool) -> float:
        value, source, kind = self._unpack(name, raw)
        zero_allowed = name in _MAY_BE_ZERO
        wanted = "a whole number" if whole else "a number"
        wanted += " of at least 0" if zero_allowed else " above 0"
        if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
            raise self._error(name, wanted, value)
        if not 0 <= value <= sys.float_info.max or (value == 0 and not zero_allowed):
            raise self._error(name, wanted, value)
        number = value if whole else float(value)
        self.figures[name] = Figure(number, source, kind)
        return number

    def _unpack(self, name: str, raw: object) -> tuple[object, str, str]:
        if not isinstance(raw, dict):
            return raw, "user", "user"
        for key in raw:
            if key not in ("value", "source", "kind"):
                raise TargetError(
                    f"{self._where}: {label(name)} has an unknown key {short(key)};"
                    " a figure has value, source and kind"
                )
        if "value" not in raw:
            raise TargetError(f"{self._where}: {label(name)} has no 'value'")
        source = self._text(f"{name}.source", raw.get("source", "user"))
        kind = raw.get("kind", "specified" if "source" in raw else "user")
        if kind not in KINDS:
            raise self._error(f"{name}.kind", f"one of {', '.join(KINDS)}", kind)
        return raw["value"], source, kind

    def _text(self, name: str, raw: object) -> str:
        if not isinstance(raw, str) or not raw.strip():
            raise self._error(name, "a text that is not empty", raw)
        return raw

    def _error(self, name: str, wanted: str, value: object) -> TargetError:
        return TargetError(f"{self._where}: {label(name)} must be {wanted}, not {short(value)}")


def _check_arch(target: Target, where: str) -> None:
    if target.backend not in ARCH:
        known = ", ".join(ARCH)
        raise TargetError(f"{where}: backend {short(target.backend)} is unknown; known: {known}")
    if not re.fullmatch(ARCH[target.backend], target.arch):
        example = "sm_90" if target.backend == "cuda" else "gfx942"
        raise TargetError(
            f"{where}: arch {short(target.arch)} is not of backend {target.backend};"
            f" write it as {example!r}"
        )


_SIZES: Final[tuple[tuple[str, float, float, str], ...]] = (
    ("clock_hz", 1e6, 1e11, "hertz"),
    ("_bytes_per_s", 1e9, 1e17, "bytes a second"),
    ("flops_per_s", 1e9, 1e20, "FLOPs a second"),
    ("_us", 0.01, 1e5, "microseconds"),
    ("dram_bytes", 2**20, 2**50, "bytes"),
    ("sms", 1, 2**16, "SMs"),
    ("", 0, 2**40, "what its name says"),
)
"""The end of a figure's name, the least and most that a device may have, and the unit."""


def _check_sizes(target: Target, where: str) -> None:
    """Refuse what no device has, such as a clock in MHz where hertz are meant."""
    for name, figure in target.figures.items():
        field = name.partition(".")[0]
        _, least, most, unit = next(size for size in _SIZES if field.endswith(size[0]))
        if not least <= figure.value <= most:
            side = f"below {least:g}" if figure.value < least else f"above {most:g}"
            raise TargetError(
                f"{where}: {label(name)} is {figure.value:g}, and no device has it {side}; "
                f"give it in {unit}"
            )


def _parse_json(text: str, where: str) -> dict[str, object]:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise TargetError(
            f"{where}: not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from error
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits; deep nesting
        raise TargetError(f"{where}: not usable JSON: {short(str(error))}") from error
    if not isinstance(data, dict):
        raise TargetError(f"{where}: must hold a JSON object with the fields of a target")
    return data


def descriptor_of(target: Target) -> dict[str, Any]:
    """Return the descriptor of a target as JSON values, which `target_of` reads back."""
    document: dict[str, Any] = {}
    for f in fields(Target):
        value = getattr(target, f.name)
        if f.name == "figures" or value is None or value == {}:
            continue
        if isinstance(value, Mapping):
            document[f.name] = {key: _stated(target, f"{f.name}.{key}") for key in value}
        elif isinstance(value, tuple):
            document[f.name] = list(value)
        else:
            document[f.name] = _stated(target, f.name) if f.name in target.figures else value
    return document


def _stated(target: Target, name: str) -> dict[str, Any]:
    return asdict(target.figure(name))
