"""Reads the stores for a request: tuned, predicted or neighbouring configs. Compiles nothing.

SQLAlchemy is loaded only where `fast_lookup` cannot answer from the store's file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.records.tuned import TuneKey, TuneRecord
from asmtune.store.fast_lookup import FastAnswer, StoredConfig, fast_lookup
from asmtune.store.lookup import StoredPrediction, reusable
from asmtune.store.shipped import find_tuned, shipped_of

if TYPE_CHECKING:
    from asmtune.store.safe_store import SafeStore
    from asmtune.tuning.request import TuningRequest


def nearest(records: Iterable[TuneRecord], request: TuningRequest) -> Config | None:
    """Return the winner of the nearest record whose winner is in the request's space; else None.

    A space whose constraints name sizes differs from shape to shape, so that the configs are
    compared and not the spaces.

    Args:
        records: of any keys; those of another kernel, device or dtypes, made with another
            source or Triton, or of a shape that does not compare are left out.
        request: the launch.
    """
    key = request.key
    placed = [
        (away, record)
        for record in records
        if _related(record.key, key)
        and record.winner.ir_override is None  # nothing checks a neighbour's config here
        and reusable(record.provenance.source, record.provenance.triton, request.expected)
        and (away := distance(record.key.shape, key.shape)) is not None
    ]
    for _, record in sorted(placed, key=lambda pair: pair[0]):
        config = request.space.matching(record.winner, **request.problem.shape)
        if config is not None:
            return config
    return None


def distance(one: Mapping[str, Any], other: Mapping[str, Any]) -> float | None:
    """Sum |log2| of the ratios of two shapes' numbers; None if the shapes do not compare.

    Shapes do not compare if names differ, if values that are no numbers differ, or if one of
    two different numbers is not above 0.
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


How = Literal["tuned", "known", "predicted", "nearest", "heuristic", "busy"]


@dataclass(frozen=True)
class Choice:
    """The config to launch.

    Attributes:
        config: the space's own config if it has an equal one, with its `pre_hook`.
        final: whether it counts for the rest of the process; else the next launch resolves
            the key again.
        how: "tuned" now, "known" to a store, "predicted" by the model, of the "nearest" stored
            neighbour, the "heuristic", or a pick while another process is "busy" tuning it.
        record: with every timing, if it was tuned now; if it was known, only where it had to
            be read whole.
        compiled, timed: number of configs, if it was tuned now.
        seconds: that resolving took.
    """

    config: Config
    final: bool
    how: How
    record: TuneRecord | None = None
    compiled: int = 0
    timed: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class MissLookup:
    """Answers of the stores to one request."""

    request: TuningRequest
    settings: Settings

    def tuned(self) -> Choice | None:
        """Return the tuned config of the user's store, or else of the shipped configs."""
        for config, record in self._tuned_configs():
            own = self.request.own(config)
            if own is not None:
                return Choice(own, True, "known", record)
        return None

    def _tuned_configs(self) -> Iterator[tuple[Config, TuneRecord | None]]:
        """Yield the valid configs of the user's store and of the shipped files, with records."""
        key, expected, stored = self.request.key, self.request.expected, self._fast_answer.seen
        if stored is not None and stored.how == "tuned":
            yield stored.config, None
        for layer in (None,) if self._fast_answer.sure else (self._store, None):
            answer = find_tuned(key, expected, layer)
            if answer.outcome == "hit" and answer.record is not None:
                yield answer.record.winner, answer.record

    @property
    def predicted(self) -> StoredConfig | None:
        """The config that an earlier process predicted for the key, as the space has it."""
        seen, request = self._fast_answer.seen, self.request
        stored: StoredConfig | StoredPrediction | None = None
        if not self._fast_answer.sure:
            stored = self._store.find_prediction(request.key, request.expected)
        elif seen is not None and seen.how == "predicted":
            stored = seen
        own = None if stored is None else request.own(stored.config)
        if stored is None or own is None:
            return None
        return StoredConfig(own, "predicted", stored.predicted_us)

    def nearest(self) -> Config | None:
        """Return the config of the nearest neighbour, stored or shipped."""
        key = self.request.key
        own = self._store.records(key.kernel, key.device)
        return nearest([*own, *shipped_of(key.kernel)], self.request)

    @property
    def _store(self) -> SafeStore:
        from asmtune.store.safe_store import open_user_store

        return open_user_store(self.settings)

    @property
    def _fast_answer(self) -> FastAnswer:
        # Not `cached_property`: up to Python 3.11 it has a lock, which a child that is forked
        # while another thread reads would wait for.
        answer: FastAnswer | None = vars(self).get("answer")
        if answer is None:
            where, request = self.settings.store_where, self.request
            answer = vars(self)["answer"] = fast_lookup(where, request.key, request.expected)
        return answer
