"""What other shapes of a kernel teach: configs to try first, and configs to try last."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from asmtune.core.config import Config
from asmtune.core.records.tuned import TuneKey, TuneRecord

MOST_SEEDS: Final = 6
"""Configs of other shapes that go into the first batch."""

BEST_OF_EACH: Final = 2
"""Of each record, how many of its fastest are seeds."""

SLOW: Final = 5.0
"""Times the best of its record from which a config counts as bad there."""

_SIZES: Final = (int, float)

AGREEING: Final = 2
"""Records in which a config must be bad, and none in which it is not, to be tried last."""


@dataclass(frozen=True)
class Experience:
    """What is known of a kernel before a search of one shape begins.

    Attributes:
        seeds: good on other shapes, the nearest shape's first.
        shunned: failed or slow wherever they were tried.
    """

    seeds: tuple[Config, ...] = ()
    shunned: frozenset[Config] = frozenset()


def experience(records: Iterable[TuneRecord], key: TuneKey) -> Experience:
    """What records of the same kernel, device and dtypes tell a search of another shape.

    Args:
        records: of any kernels and shapes; those of other kernels, dtypes or devices, and the
            key's own, are left out.
        key: of the search.
    """
    others = [record for record in records if _related(record.key, key)]
    others.sort(key=lambda record: distance(record.key.shape, key.shape))
    seeds = [
        config for record in others for config in (record.winner, *_fastest(record)[:BEST_OF_EACH])
    ]
    return Experience(tuple(dict.fromkeys(seeds))[:MOST_SEEDS], _shunned(others))


def distance(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """How far two shapes are apart: the sum of |log2| of the ratios of their sizes.

    Values that are no numbers above 0 are one step apart where they differ.
    """
    total = 0.0
    for name in one.keys() | other.keys():
        a, b = one.get(name), other.get(name)
        if isinstance(a, _SIZES) and isinstance(b, _SIZES) and a > 0 and b > 0:
            total += abs(math.log2(a) - math.log2(b))
        elif a != b:
            total += 1.0
    return total


def _related(one: TuneKey, other: TuneKey) -> bool:
    same = (one.kernel, one.device, dict(one.dtypes))
    return same == (other.kernel, other.device, dict(other.dtypes)) and one != other


def _fastest(record: TuneRecord) -> list[Config]:
    return [m.config for m in sorted(record.measurements, key=lambda m: m.median_us)]


def _shunned(records: Sequence[TuneRecord]) -> frozenset[Config]:
    bad: Counter[Config] = Counter()
    good: set[Config] = set()
    for record in records:
        best = min((m.median_us for m in record.measurements), default=0.0)
        for measurement in record.measurements:
            if measurement.median_us > SLOW * best:
                bad[measurement.config] += 1
            else:
                good.add(measurement.config)
        bad.update(config for config, failure in record.failures if failure.stage != "rules")
    return frozenset(c for c, count in bad.items() if count >= AGREEING and c not in good)
