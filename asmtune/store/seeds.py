"""Seeds: configs of other origin that a search compiles and times first.

A seed is a hint and no record: nothing launches it before a search has timed it. Seeds are kept
in the folder `seeds` of the cache folder, a JSON file for each kernel:

    {"format": "asmtune-seeds", "version": 1,
     "entries": [{"key": {"kernel", "shape", "dtypes", "device"}, "configs": [...]}]}
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from asmtune.base.atomic_write import write_whole
from asmtune.base.errors import InputError, StoreError
from asmtune.base.fingerprint import digest
from asmtune.base.json_codec import expected, parse_json, to_json
from asmtune.base.text import user_stacklevel
from asmtune.base.trust import fault_line, trusted_file, trusted_folder
from asmtune.core.config import Config
from asmtune.core.records.tuned import TuneKey, TuneRecord
from asmtune.store.codec import config_text, key_digest, read
from asmtune.store.interchange import abridged, check_header
from asmtune.store.lookup import StoreWarning
from asmtune.store.sqlite_file import creation_lock

FORMAT: Final = "asmtune-seeds"
VERSION: Final = 1
_LOCK_S: Final = 10.0


@dataclass(frozen=True)
class KeyedConfigs:
    """Configs of a key, the best first.

    Attributes:
        key: the key; shape, dtypes and device are empty as far as their origin does not say them,
            and the device may be spelled with `_` for spaces.
        configs: at least one, without hooks.
    """

    key: TuneKey
    configs: tuple[Config, ...]


def configs_of(record: TuneRecord, count: int) -> KeyedConfigs | None:
    """Return a record's winner and its fastest others, `count` in all.

    A config of hand-edited IR is left out, since its file does not travel. None if none is left.
    """
    timed = (timing.config.plain for timing in abridged(record, count).measurements)
    configs = [c for c in unique_configs([record.winner.plain, *timed]) if c.ir_override is None]
    return KeyedConfigs(record.key, tuple(configs[:count])) if configs else None


def unique_configs(configs: Iterable[Config]) -> list[Config]:
    """Return configs in their order, equal ones once."""
    return list({config_text(config): config for config in configs}.values())


class SeedFolder:
    """The seeds of all kernels, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _file(self, kernel: str) -> Path:
        return self._folder / f"{digest(kernel)[:32]}.json"

    def add(self, entries: Iterable[KeyedConfigs]) -> int:
        """Add seeds, before earlier ones of equal keys; return how many configs were added.

        Raises:
            InputError: a file of the folder is malformed.
            StoreError: the folder cannot be written.
        """
        kernels: dict[str, _ByKey] = {}
        for entry in entries:
            _merge(kernels.setdefault(entry.key.kernel, {}), entry)
        count = sum(len(configs) for added in kernels.values() for _, configs in added.values())
        try:
            trusted_folder(self._folder, make=True)
            for kernel, added in kernels.items():
                path = self._file(kernel)
                with creation_lock(path, _LOCK_S):
                    for entry in self._read(kernel):
                        _merge(added, entry)
                    write_whole(path, _document(_merged(added)), private=True)
        except OSError as error:
            raise StoreError(fault_line("folder of seeds", self._folder, error)) from error
        return count

    def of(self, kernel: str) -> list[KeyedConfigs]:
        """Return a kernel's seeds; a file that cannot be read gives a warning and none."""
        try:
            return self._read(kernel)
        except OSError as error:  # one text for all kernels, which Python shows once
            text = f"seeds in {self._folder} are left out: {error.strerror or error}"
        except InputError as error:
            text = f"seeds of {kernel} are left out: {error}; import them again"
        warnings.warn(text, StoreWarning, stacklevel=user_stacklevel())
        return []

    def clear(self, kernel: str | None = None) -> None:
        """Delete the seeds of a kernel, or all."""
        for path in self._folder.glob("*.json") if kernel is None else [self._file(kernel)]:
            path.unlink(missing_ok=True)

    def _read(self, kernel: str) -> list[KeyedConfigs]:
        path = self._file(kernel)
        try:
            trusted_file(path)
            document = parse_json(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return []
        except ValueError as error:
            raise InputError(f"{path}: not JSON ({error})") from error
        try:
            check_header(document, FORMAT, VERSION, ["entries"])
            values = document.get("entries")
            if not isinstance(values, list):
                raise expected("a list", "entries", values)
            return [_entry(value, f"entries[{i}]") for i, value in enumerate(values)]
        except InputError as error:
            raise InputError(f"{path}: {error}") from error


def _entry(value: Any, where: str) -> KeyedConfigs:
    entry = read(KeyedConfigs, value, where)
    if not entry.configs:
        raise expected("a list of configs", f"{where}.configs", [])
    return entry


_ByKey = dict[str, tuple[TuneKey, dict[str, Config]]]
"""Keys by their identity, each with its configs by their text."""


def _merge(by_key: _ByKey, entry: KeyedConfigs) -> None:
    """Add an entry's configs after those that its key has."""
    _, configs = by_key.setdefault(key_digest(entry.key), (entry.key, {}))
    for config in entry.configs:
        configs.setdefault(config_text(config), config)


def _merged(by_key: _ByKey) -> list[KeyedConfigs]:
    return [KeyedConfigs(key, tuple(configs.values())) for key, configs in by_key.values()]


def _document(entries: Iterable[KeyedConfigs]) -> bytes:
    lines = ",\n".join(json.dumps(to_json(entry), sort_keys=True) for entry in entries)
    return f'{{"format": "{FORMAT}", "version": {VERSION}, "entries": [\n{lines}\n]}}\n'.encode()
