"""What a device can do: limits and rates, each with the source of its figure.

A descriptor is a JSON file. The shipped ones lie in `asmtune/targets/`; a user's own
file has the same fields. A field holds `{"value": ..., "source": ..., "kind": ...}` or
the bare value, whose source is then "user". Units stand in the field names; a flop is
one multiplication or one addition, so that a fused multiply-add counts as two.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import Any

from asmtune.errors import TargetError

KINDS = ("specified", "measured", "derived", "user")

_ARCH = {"cuda": r"sm_(\d{2,3})[af]?", "hip": r"gfx[0-9a-f]{3,5}"}
_MAY_BE_ZERO = frozenset({"shared_reserved_bytes_per_block"})


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a descriptor and where it comes from.

    Attributes:
        value: The number, in the unit its field name states.
        source: The document and place it was taken from, or how it was derived.
        kind: "specified" by the vendor, "measured", "derived" from other figures,
            or "user" (a bare value in a user's file).
    """

    value: float
    source: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One device: limits for feasibility and occupancy, rates for rooflines.

    Rates are the vendor's dense peaks at boost clock, with FP32 accumulation where the
    device distinguishes: that is what Triton asks for. `measured_*` are rates that a
    real device reached, for whoever wants an attainable ceiling.

    `warp_allocation_granularity` is the number of partitions an SM's registers are split
    into. Where the vendor states tensor rates at another clock than `clock_hz`, the
    source of `clock_hz` says so.
    """

    name: str
    aliases: tuple[str, ...]
    arch: str
    backend: str
    warp_size: int
    sms: int
    clock_hz: float
    registers_per_sm: int
    max_registers_per_thread: int
    register_allocation_unit: int
    warp_allocation_granularity: int
    shared_bytes_per_sm: int
    shared_bytes_per_block: int
    shared_reserved_bytes_per_block: int
    shared_allocation_unit_bytes: int
    max_warps_per_sm: int
    max_threads_per_block: int
    max_blocks_per_sm: int
    l2_bytes: int
    dram_bytes: int
    dram_bytes_per_s: float
    l2_bytes_per_s: float
    shared_bytes_per_clock_per_sm: int
    issue_slots_per_clock_per_sm: int
    special_functions_per_clock_per_sm: int
    fp32_flops_per_s: float
    tensor_flops_per_s: Mapping[str, float] = field(hash=False)
    tensor_memory_bytes_per_sm: int | None = None
    measured_dram_bytes_per_s: float | None = None
    measured_tensor_flops_per_s: Mapping[str, float] = field(default_factory=dict, hash=False)
    figures: Mapping[str, Figure] = field(default_factory=dict, repr=False, compare=False)

    @property
    def capability(self) -> int:
        """CUDA compute capability as Triton writes it: 90 for "sm_90".

        Raises:
            TargetError: The target is not a CUDA device.
        """
        match = re.fullmatch(_ARCH["cuda"], self.arch)
        if match is None:
            raise TargetError(
                f"{self.name}: arch {self.arch!r} has no CUDA compute capability; use a CUDA target"
            )
        return int(match[1])

    @property
    def shared_bytes_per_s(self) -> float:
        """Shared memory bandwidth of the whole device, in bytes a second."""
        return self.shared_bytes_per_clock_per_sm * self.sms * self.clock_hz

    @property
    def issue_slots_per_s(self) -> float:
        """Warp instructions the whole device can issue in a second."""
        return self.issue_slots_per_clock_per_sm * self.sms * self.clock_hz

    @property
    def special_functions_per_s(self) -> float:
        """Results of exp2, log2, rcp and the like the whole device gives in a second."""
        return self.special_functions_per_clock_per_sm * self.sms * self.clock_hz

    def flops_per_s(self, dtype: str) -> float:
        """Peak rate for operands of a type, in flops a second.

        Args:
            dtype: "fp32" for the ordinary cores, else a key of `tensor_flops_per_s`.

        Raises:
            TargetError: The device has no rate for the type.
        """
        if dtype == "fp32":
            return self.fp32_flops_per_s
        if dtype not in self.tensor_flops_per_s:
            known = ", ".join(["fp32", *self.tensor_flops_per_s])
            raise TargetError(f"{self.name} has no rate for {_short(dtype)}; it has {known}")
        return self.tensor_flops_per_s[dtype]

    def figure(self, name: str) -> Figure:
        """Return a field's number with its source.

        Args:
            name: A numeric field, or one entry of a table: "tensor_flops_per_s.bf16".

        Raises:
            TargetError: The descriptor has no such figure.
        """
        if name not in self.figures:
            hint = _did_you_mean(name, self.figures)
            raise TargetError(f"{self.name} has no figure {_short(name)}{hint}")
        return self.figures[name]

    def source(self, name: str) -> str:
        """Return the source of a figure; names as for `figure`."""
        return self.figure(name).source


def load_target(name_or_path: str) -> Target:
    """Load a shipped target by name or alias, or a descriptor from a file.

    Args:
        name_or_path: "H200", "NVIDIA H200" (case and runs of spaces do not matter), or
            a path: whatever holds a "/" or ends with ".json".

    Raises:
        TargetError: The name is unknown, or the file is unreadable or malformed.
    """
    if "/" in name_or_path or name_or_path.endswith(".json"):
        return parse_target(_read(name_or_path), name_or_path)
    target = match_device(name_or_path)
    if target is None:
        raise TargetError(_unknown(name_or_path))
    return target


def target_names() -> tuple[str, ...]:
    """Names of the shipped targets, sorted."""
    return tuple(sorted(target.name for target in _shipped()))


def match_device(device_name: str) -> Target | None:
    """Find the shipped target of a device, given its full name as the driver reports it.

    A device that only resembles a shipped one ("NVIDIA H100 PCIe") gives None: its limits
    may agree, but its rates do not.
    """
    wanted = _plain(device_name)
    for target in _shipped():
        if wanted in {_plain(name) for name in (target.name, *target.aliases)}:
            return target
    return None


def parse_target(text: str, where: str) -> Target:
    """Read a descriptor from JSON text and check it.

    Args:
        text: The JSON.
        where: What error messages call it, usually its path.

    Raises:
        TargetError: The text is not JSON, a field is missing, unknown or of the wrong
            type, or limits contradict each other.
    """
    data = _parse_json(text, where)
    known = {f.name: f for f in fields(Target) if f.name != "figures"}
    for name in data:
        if name not in known:
            hint = _did_you_mean(name, known)
            raise TargetError(f"{where}: unknown field {_short(name)}{hint}")
    reader = _Reader(where)
    values: dict[str, Any] = {}
    for name, f in known.items():
        if name in data:
            values[name] = reader.read(name, str(f.type).removesuffix(" | None"), data[name])
        elif f.default is MISSING and f.default_factory is MISSING:
            raise TargetError(f"{where}: field {name!r} is missing; every target states it")
    target = Target(**values, figures=reader.figures)
    _check_limits(target, where)
    return target


class _Reader:
    """Turns JSON values into field values and keeps each number's source.

    Attributes:
        figures: What has been read so far, by field name.
    """

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
        if not _is_finite(value) or value < 0 or (value == 0 and not zero_allowed):
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
                    f"{self._where}: {name} has an unknown key {_short(key)};"
                    " a figure has value, source and kind"
                )
        if "value" not in raw:
            raise TargetError(f"{self._where}: {name} has no 'value'")
        source = self._text(f"{name}.source", raw.get("source", "user"))
        kind = raw.get("kind", "specified" if "source" in raw else "user")
        if kind not in KINDS:
            raise self._error(f"{name}.kind", f"one of {', '.join(KINDS)}", kind)
        return raw["value"], source, kind

    def _text(self, name: str, raw: object) -> str:
        if not isinstance(raw, str) or not raw.strip():
            raise self._error(name, "a text that is not empty", raw)
        return raw

    def _error(self, name: str, wanted: str, found: object) -> TargetError:
        return TargetError(f"{self._where}: {name} must be {wanted}, not {_short(found)}")


def _check_limits(target: Target, where: str) -> None:
    """Refuse limits that contradict each other."""
    arch = _ARCH.get(target.backend)
    if arch is None:
        known = ", ".join(_ARCH)
        raise TargetError(f"{where}: backend {_short(target.backend)} is unknown; known: {known}")
    if not re.fullmatch(arch, target.arch):
        example = "sm_90" if target.backend == "cuda" else "gfx942"
        raise TargetError(
            f"{where}: arch {_short(target.arch)} is not of backend {target.backend};"
            f" write it as {example!r}"
        )
    t = target
    for small, small_value, large, large_value in (
        (
            "shared_bytes_per_block + shared_reserved_bytes_per_block",
            t.shared_bytes_per_block + t.shared_reserved_bytes_per_block,
            "shared_bytes_per_sm",
            t.shared_bytes_per_sm,
        ),
        (
            "max_threads_per_block",
            t.max_threads_per_block,
            "max_warps_per_sm * warp_size",
            t.max_warps_per_sm * t.warp_size,
        ),
        (
            "max_registers_per_thread * warp_size",
            t.max_registers_per_thread * t.warp_size,
            "registers_per_sm / warp_allocation_granularity",
            t.registers_per_sm // t.warp_allocation_granularity,
        ),
        ("max_blocks_per_sm", t.max_blocks_per_sm, "max_warps_per_sm", t.max_warps_per_sm),
        ("l2_bytes", t.l2_bytes, "dram_bytes", t.dram_bytes),
        ("dram_bytes_per_s", t.dram_bytes_per_s, "l2_bytes_per_s", t.l2_bytes_per_s),
    ):
        if small_value > large_value:
            raise TargetError(
                f"{where}: {small} = {small_value} exceeds {large} = {large_value}; correct one"
            )


def _parse_json(text: str, where: str) -> dict[str, object]:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise TargetError(
            f"{where}: not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from error
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits; deep nesting
        raise TargetError(f"{where}: not usable JSON: {_short(str(error))}") from error
    if not isinstance(data, dict):
        raise TargetError(f"{where}: must hold a JSON object with the fields of a target")
    return data


def _read(path: str) -> str:
    # Here and below: these imports cost more than this module's 5 ms, and only loading needs them.
    from pathlib import Path

    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise TargetError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # not UTF-8, or a NUL in the path
        raise TargetError(f"{_short(path)}: cannot be read: {_short(str(error))}") from error


@cache
def _shipped() -> tuple[Target, ...]:
    from importlib.resources import files

    found = sorted(files("asmtune.targets").iterdir(), key=lambda entry: entry.name)
    return tuple(
        parse_target(entry.read_text(encoding="utf-8"), f"asmtune/targets/{entry.name}")
        for entry in found
        if entry.name.endswith(".json")
    )


def _unknown(name: str) -> str:
    same_arch = [target.name for target in _shipped() if target.arch == _plain(name)]
    if same_arch:
        return (
            f"target {_short(name)} is an architecture, not a device;"
            f" its devices here: {', '.join(same_arch)}"
        )
    names = [n for target in _shipped() for n in (target.name, *target.aliases)]
    return (
        f"target {_short(name)} is unknown{_did_you_mean(name, names)};"
        f" known: {', '.join(target_names())}; or give the path of a .json descriptor"
    )


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    by_plain = {_plain(candidate): candidate for candidate in known}
    near = get_close_matches(_plain(name), by_plain, n=1)
    return f"; did you mean {by_plain[near[0]]!r}?" if near else ""


def _plain(name: str) -> str:
    return " ".join(name.casefold().split())


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond the range of a float
        return False
