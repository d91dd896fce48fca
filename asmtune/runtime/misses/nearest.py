"""The nearest stored neighbour of a key: a start while the key itself is unknown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from asmtune.core.config import Config
from asmtune.core.records.tuned import Provenance, TuneKey, TuneRecord
from asmtune.runtime.misses.answers import Miss
from asmtune.store.lookup import reusable


def nearest(records: Iterable[TuneRecord], miss: Miss, now: Provenance) -> Config | None:
    """The winner of the nearest record whose winner is a config of the miss's space; else None.

    A space whose constraints name sizes differs from shape to shape, so that the config
    decides and not the space.

    Args:
        records: of any keys; those of another kernel, device or dtypes, made with another
            source or Triton, or of a shape that does not compare are left out.
        miss: the launch.
        now: how it would be tuned.
    """
    key = miss.key
    placed = [
        (away, record)
        for record in records
        if _related(record.key, key)
        and record.winner.ir_override is None  # nothing checks a neighbour's config here
        and reusable(record.provenance.source, record.provenance.triton, now)
        and (away := distance(record.key.shape, key.shape)) is not None
    ]
    for _, record in sorted(placed, key=lambda pair: pair[0]):
        config = miss.space.matching(record.winner, **miss.problem.shape)
        if config is not None:
            return config
    return None


def distance(one: Mapping[str, Any], other: Mapping[str, Any]) -> float | None:
    """The sum of |log2| of the ratios of two shapes' numbers; None where they do not compare.

    They do not where names differ, where other values differ, and where of two different
    numbers one is not above 0.
    """
    if one.keys() != other.keys():
        return None
    total = 0.0
    for name, a in one.items():
        b = other[name]
        if type(a) is type(b) and a == b:
            continue
        if not (_is_size(a) and _is_size(b)):
            return None
        total += abs(math.log2(a) - math.log2(b))
    return total


def _is_size(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _related(one: TuneKey, other: TuneKey) -> bool:
    same = (one.kernel, one.device, dict(one.dtypes))
    return same == (other.kernel, other.device, dict(other.dtypes))
