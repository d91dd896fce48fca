"""Seeds: configs of other origin that a search compiles and times first.

A seed is a hint and no record: nothing launches it before a search has timed it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from asmtune.core.config import Config
from asmtune.core.records.tuned import Provenance, TuneKey, TuneRecord
from asmtune.store.codec import config_text, key_digest
from asmtune.store.interchange import abridged

UNTIMED: Final = Provenance("", "", "", "", "", "", "")
"""The provenance of a seed, of which nothing is known."""


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
    plain = (c for c in (record.winner.plain, *timed) if c.ir_override is None)
    found = merged((record.key, config) for config in plain)
    return KeyedConfigs(record.key, found[0].configs[:count]) if found else None


def merged(pairs: Iterable[tuple[TuneKey, Config]]) -> list[KeyedConfigs]:
    """Collect the configs of each key in their order, equal ones once."""
    by_key: dict[str, tuple[TuneKey, dict[str, Config]]] = {}
    for key, config in pairs:
        _, configs = by_key.setdefault(key_digest(key), (key, {}))
        configs.setdefault(config_text(config), config)
    return [KeyedConfigs(key, tuple(configs.values())) for key, configs in by_key.values()]
