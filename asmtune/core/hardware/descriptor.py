"""Descriptors read from JSON, with every field checked, and NVIDIA's architectures.

`architectures.json` holds limits and published rates by compute capability. A figure in it, as in
the files of families, is `[value, source]` or `[value, source, kind]`; "@name" in a source means
the document of that name. `complete` turns what a device states into a whole descriptor: limits
come from the table, and rates that the device does not state from the architecture's rate per SM
and clock.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from functools import cache
from typing import Any, Final

from asmtune.base.errors import TargetError
from asmtune.base.text import did_you_mean
from asmtune.core.hardware.model import ARCH, L2_BYTES_PER_CYCLE, Figure, Target, label, short

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


Raw = dict[str, Any]
"""Fields of a descriptor by name, as its JSON has them."""

_RATES: Final = "rates."


def expanded(figure: list[Any], sources: Mapping[str, str]) -> Raw:
    """Turn `[value, source, kind]` into a descriptor's figure, or a table of them.

    Raises:
        TargetError: the source names a document that is not listed.
    """
    value, source, *rest = figure

    def document(match: re.Match[str]) -> str:
        if match[1] not in sources:
            raise TargetError(f"source {match[0]!r} names no document of the file")
        return sources[match[1]]

    text = re.sub(r"@(\w+)", document, source)
    given = rest[0] if rest else "specified"
    if isinstance(value, dict):
        return {key: {"value": one, "source": text, "kind": given} for key, one in value.items()}
    return {"value": value, "source": text, "kind": given}


@cache
def _table() -> Raw:
    from importlib.resources import files

    text = files("asmtune.core.hardware").joinpath("architectures.json").read_text("utf-8")
    table: Raw = json.loads(text)
    return table


def nearest_known(major: int, minor: int) -> tuple[int, int] | None:
    """Find the newest compute capability of the table that is not newer; None if all are."""
    known = sorted(tuple(map(int, name.split("."))) for name in _table()["architectures"])
    older = [(one, other) for one, other in known if (one, other) <= (major, minor)]
    return older[-1] if older else None


def limits_of(major: int, minor: int) -> tuple[Raw, Raw]:
    """Return an architecture's limits, as fields of a descriptor, and its rates.

    One that is newer than the table has those of the nearest older one, and its sources say so.

    Raises:
        TargetError: it is older than all that are known.
    """
    known = nearest_known(major, minor)
    if known is None:
        raise TargetError(f"compute capability {major}.{minor} is older than all that are known")
    table = _table()
    entry = dict(table["architectures"][f"{known[0]}.{known[1]}"])
    names = {"cc": f"{known[0]}.{known[1]}", "sm": f"{known[0]}{known[1]}"}
    names["section"] = entry.pop("section")
    stands_for = (
        ""
        if known == (major, minor)
        else (f" (compute capability {names['cc']}, the nearest known to {major}.{minor})")
    )
    limits: Raw = {}
    rates: Raw = {}
    for name, figure in {**table["common"], **entry}.items():
        one = expanded(figure, table["sources"])
        for leaf in _leaves(one):
            for key, text in names.items():
                leaf["source"] = leaf["source"].replace(f"{{{key}}}", text)
            leaf["source"] += stands_for
            if stands_for:
                leaf["kind"] = "derived"
        (rates if name.startswith(_RATES) else limits)[name.removeprefix(_RATES)] = one
    return limits, rates


def _leaves(figure: Raw) -> list[Raw]:
    return [figure] if "source" in figure else list(figure.values())


def complete(stated: Raw) -> Raw:
    """Fill a descriptor of a CUDA device from its architecture's limits and rates.

    Args:
        stated: `name`, `aliases`, `arch`, and figures: `sms`, `clock_hz` and what else the device
            states. `bus_bits` (of its memory) and `geforce` (whether it halves the rate of
            matrix products that accumulate in FP32) are taken for rates that it does not state.

    Raises:
        TargetError: the architecture is not known, or a figure is missing.
    """
    given = dict(stated)
    bus_bits, geforce = given.pop("bus_bits", None), given.pop("geforce", False)
    capability = re.fullmatch(r"sm_(\d+)(\d)[af]?", str(given.get("arch")))
    if capability is None:
        raise TargetError(f"arch {given.get('arch')!r} is not of a CUDA device, such as 'sm_90'")
    limits, rates = limits_of(int(capability[1]), int(capability[2]))
    whole = {"backend": "cuda", **limits, **given}
    if all(isinstance(given.get(name), dict) for name in ("sms", "clock_hz")):
        whole = {**_rates(whole, rates, bus_bits, geforce=bool(geforce)), **whole}
    return whole


def _rates(device: Raw, rates: Raw, bus_bits: int | None, *, geforce: bool) -> Raw:
    """Derive the rates of a device from those of its architecture's SM in a clock."""
    sms, clock_hz = device["sms"]["value"], device["clock_hz"]["value"]

    def derived(rate: Raw) -> Raw:
        source = (
            f"{rate['value']:,} FLOPs a clock and SM x {sms} SMs x {clock_hz / 1e6:g} MHz, after "
            f"{rate['source']}"
        )
        return {"value": float(rate["value"] * sms * clock_hz), "source": source, "kind": "derived"}

    halved = geforce and "tensor_geforce" in rates
    tensor: Raw = rates["tensor_geforce" if halved else "tensor"]
    filled: Raw = {
        "fp32_flops_per_s": derived(rates["fp32"]),
        "tensor_flops_per_s": {dtype: derived(rate) for dtype, rate in tensor.items()},
    }
    if bus_bits is not None:
        filled["l2_bytes_per_s"] = _l2(device, rates["l2_bytes_per_clock_per_bus_bit"], bus_bits)
    return filled


def _l2(device: Raw, rate: Raw, bus_bits: int) -> Raw:
    """Derive the bandwidth of L2, whose slices are next to the memory's controllers."""
    sms, clock_hz = device["sms"]["value"], device["clock_hz"]["value"]
    by_bus, by_sms = rate["value"] * bus_bits * clock_hz, L2_BYTES_PER_CYCLE * sms * clock_hz
    source = (
        f"{rate['value']} bytes a clock and bit of the memory's bus x {bus_bits} bits x "
        f"{clock_hz / 1e6:g} MHz, after {rate['source']}"
    )
    if by_sms < by_bus:
        source = f"{L2_BYTES_PER_CYCLE:g} bytes a clock and SM x {sms} SMs x {clock_hz / 1e6:g} MHz"
    least = device.get("dram_bytes_per_s", {}).get("value", 0.0)
    if least > min(by_bus, by_sms):
        source = "the memory's bandwidth, which is more than the L2 of the architecture would give"
    return {"value": float(max(min(by_bus, by_sms), least)), "source": source, "kind": "derived"}


def family(text: str, where: str) -> list[Raw]:
    """Read a file of a family: `sources`, and `devices` that state only what they have.

    A device that is `like` another takes over what it does not state itself, and nothing measured.

    Raises:
        TargetError: the file is malformed; names the device.
    """
    document = json.loads(text)
    sources = document["sources"]
    stated: dict[str, Raw] = {}
    whole = []
    for device in document["devices"]:
        like = stated.get(device.get("like", ""), {})
        inherited = {k: value for k, value in like.items() if not k.startswith("measured_")}
        fields = {**inherited, **device}
        fields.pop("like", None)
        stated[device["name"]] = fields
        try:
            read = {name: _read(value, sources) for name, value in fields.items()}
            whole.append(complete(read))
        except TargetError as error:
            raise TargetError(f"{where}: {device['name']}: {error}") from error
    return whole


def _read(value: Any, sources: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: _read(one, sources) for name, one in value.items()}
    is_figure = isinstance(value, list) and value and not isinstance(value[0], str)
    return expanded(value, sources) if is_figure else value
