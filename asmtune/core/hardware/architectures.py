"""NVIDIA's architectures: limits and published rates by compute capability, and what follows.

`architectures.json` holds the table. A figure in it, as in the files of families, is
`[value, source]` or `[value, source, kind]`; "@name" in a source means the document of that
name. `complete` turns what a device states into a whole descriptor: limits come from the table,
and rates that the device does not state from the architecture's rate per SM and clock.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from asmtune.base.errors import TargetError
from asmtune.core.hardware.model import L2_BYTES_PER_CYCLE

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
