"""The targets that ship, and a user's own by path."""

from __future__ import annotations

from functools import cache

from asmtune.base.errors import TargetError
from asmtune.core.hardware.descriptor import parse_target
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.words import did_you_mean, plain, short


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
    wanted = plain(device_name)
    for target in _shipped():
        if wanted in {plain(name) for name in (target.name, *target.aliases)}:
            return target
    return None


def _read(path: str) -> str:
    # Here and below: these imports cost more than this module's 5 ms, and only loading needs them.
    from pathlib import Path

    where = path if path.isprintable() else repr(path)
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise TargetError(f"{where}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TargetError(f"{where}: cannot be read: byte {error.start} is not UTF-8") from error
    except ValueError as error:  # a NUL in the path
        raise TargetError(f"{where}: cannot be read: {error}") from error


@cache
def _shipped() -> tuple[Target, ...]:
    from importlib.resources import files

    found = sorted(files("asmtune.core.hardware.devices").iterdir(), key=lambda entry: entry.name)
    return tuple(
        parse_target(
            entry.read_text(encoding="utf-8"), f"asmtune/core/hardware/devices/{entry.name}"
        )
        for entry in found
        if entry.name.endswith(".json")
    )


def _unknown(name: str) -> str:
    same_arch = [target.name for target in _shipped() if target.arch == plain(name)]
    if same_arch:
        return (
            f"target {short(name)} is an architecture, not a device;"
            f" its devices here: {', '.join(same_arch)}"
        )
    names = [n for target in _shipped() for n in (target.name, *target.aliases)]
    return (
        f"target {short(name)} is unknown{did_you_mean(name, names)};"
        f" known: {', '.join(target_names())}; or give the path of a .json descriptor"
    )
