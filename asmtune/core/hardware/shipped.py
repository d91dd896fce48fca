"""Targets read from JSON descriptors and checked: those that ship, and a user's own.

A name is looked for in the user's folder of descriptors (`ASMTUNE_TARGETS`), then among those that
ship. The device at hand that no file describes is derived from its driver's attributes.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from asmtune.base.errors import TargetError
from asmtune.base.text import did_you_mean, user_stacklevel
from asmtune.core.hardware.descriptor import family, parse_target, target_of
from asmtune.core.hardware.driver import device_here
from asmtune.core.hardware.model import Target, label, plain, short

if TYPE_CHECKING:
    from pathlib import Path


def load_target(name_or_path: str, *, own: bool = True) -> Target:
    """Load a target by name or alias, or a descriptor from a file.

    Args:
        name_or_path: "H200", "NVIDIA H200" (case and runs of spaces do not matter), the name of a
            descriptor in the user's folder, or a path: whatever holds a "/" or ends with ".json".
        own: whether the user's folder is looked into.

    Raises:
        TargetError: the name is unknown, the file is unreadable or malformed, or the user's folder
            cannot be read.
    """
    if "/" in name_or_path or name_or_path.endswith(".json"):
        return parse_target(_read(name_or_path), name_or_path)
    if own and (unreadable := _own_targets().unreadable):
        raise TargetError(unreadable)
    target = match_device(name_or_path) if own else shipped_target(name_or_path)
    if target is None:
        raise TargetError(_unknown(name_or_path))
    return target


def target_names() -> tuple[str, ...]:
    """Return the names of the shipped targets, sorted."""
    return tuple(sorted(target.name for target in _shipped()))


def known_targets() -> tuple[Target, ...]:
    """Return the user's targets and the shipped ones of other names, sorted by name.

    Raises:
        TargetError: the user's folder cannot be read.
    """
    own = _own_targets()
    if own.unreadable:
        raise TargetError(own.unreadable)
    own.warn()
    by_name = {plain(target.name): target for target in (*_shipped(), *own.by_name.values())}
    return tuple(sorted(by_name.values(), key=lambda target: target.name))


def shipped_target(name: str) -> Target | None:
    """Find a shipped target by name or alias, whatever the user's folder holds."""
    return _shipped_names().get(plain(name))


def match_device(device_name: str) -> Target | None:
    """Find the target of a device, given its full name as the driver reports it.

    A file that cannot be used is skipped with a warning: this never stops a launch. A
    device that only resembles a shipped one gives None, unless it is in this machine and in use:
    then its target is derived. So is that of a device here that has a shipped one's name, but
    another number of SMs: a slice or a variant.
    """
    own = _own_targets()
    own.warn()
    if plain(device_name) in own.by_name:
        return own.by_name[plain(device_name)]
    shipped = shipped_target(device_name)
    here = device_here(device_name)
    if here is None or (shipped is not None and here.sms in (None, shipped.sms)):
        return shipped
    derived = here.target(shipped_cuda())
    if derived is not None:
        _warn(here.remark)
    return derived or shipped


class TargetWarning(UserWarning):
    """A file of the user's folder is not used, or a device is not known exactly; says why."""


@dataclass(frozen=True)
class _OwnTargets:
    """The user's folder of descriptors.

    Attributes:
        by_name: targets by each of their names.
        problems: why a file is not used: it is damaged, or another one describes the same name.
        unreadable: why the folder cannot be read; "" if it can, or if the default one is missing.
    """

    by_name: Mapping[str, Target]
    problems: tuple[str, ...]
    unreadable: str = ""

    def warn(self) -> None:
        """Warn of everything that is not used, once a process for each."""
        for message in (self.unreadable, *self.problems):
            _warn(message)


_warned: set[str] = set()


def _warn(message: str) -> None:
    """Warn once a process; of "" nothing."""
    if message and message not in _warned:
        _warned.add(message)
        warnings.warn(message, TargetWarning, stacklevel=user_stacklevel())


def _own_targets() -> _OwnTargets:
    """Read the user's folder; what was read serves until a file in it changes."""
    from asmtune.base.settings import Settings
    from asmtune.base.trust import UntrustedError, trusted_folder

    settings = Settings.from_environment()
    folder = settings.targets_dir
    where = f"folder of descriptors {short(str(folder))}"
    try:
        if not settings.targets:
            trusted_folder(folder)
        files = sorted(path for path in folder.iterdir() if path.suffix == ".json")
        stamps = tuple((path, path.stat().st_mtime_ns, path.stat().st_size) for path in files)
    except UntrustedError as error:
        return _OwnTargets({}, (), f"{where}: {error}")
    except (OSError, ValueError) as error:
        if not settings.targets:
            return _OwnTargets({}, ())
        reason = getattr(error, "strerror", None) or str(error)
        return _OwnTargets({}, (), f"{where}: cannot be read: {reason}; correct ASMTUNE_TARGETS")
    return _read_own(stamps)


@cache
def _read_own(stamps: tuple[tuple[Path, int, int], ...]) -> _OwnTargets:
    by_name: dict[str, Target] = {}
    files: dict[str, str] = {}
    problems: list[str] = []
    for path, *_ in stamps:
        where = label(str(path))
        try:
            target = parse_target(_read(str(path)), where)
        except TargetError as error:
            problems.append(str(error))
            continue
        for name in dict.fromkeys(map(plain, (target.name, *target.aliases))):
            if name in files:
                problems.append(
                    f"{where}: describes {short(name)}, as {files[name]} does; remove one of them"
                )
            else:
                by_name[name], files[name] = target, where
    return _OwnTargets(by_name, tuple(problems))


def _read(path: str) -> str:
    # Here and below: these imports cost over 5 ms, and only loading a target needs them.
    from pathlib import Path

    from asmtune.base.limited_read import MIB, read_limited_text

    where = path if path.isprintable() else repr(path)
    try:
        return read_limited_text(Path(path), MIB)
    except OSError as error:
        raise TargetError(f"{where}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TargetError(f"{where}: cannot be read: byte {error.start} is not UTF-8") from error
    except ValueError as error:  # a NUL in the path
        raise TargetError(f"{where}: cannot be read: {error}") from error


@cache
def _shipped() -> tuple[Target, ...]:
    from importlib.resources import files

    place = "asmtune/core/hardware/devices"
    entries = sorted(files(place.replace("/", ".")).iterdir(), key=lambda entry: entry.name)
    jsons = [entry for entry in entries if entry.name.endswith(".json")]
    targets: list[Target] = []
    for entry in jsons:
        text, where = entry.read_text(encoding="utf-8"), f"{place}/{entry.name}"
        if '"devices": [' in text:
            devices = family(text, where)
            targets += (target_of(one, f"{where}: {one['name']}") for one in devices)
        else:
            targets.append(parse_target(text, where))
    return tuple(targets)


@cache
def _shipped_names() -> dict[str, Target]:
    return {plain(name): t for t in _shipped() for name in (t.name, *t.aliases)}


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


def shipped_cuda() -> tuple[Target, ...]:
    """Return the shipped targets of CUDA devices."""
    return tuple(target for target in _shipped() if target.backend == "cuda")
