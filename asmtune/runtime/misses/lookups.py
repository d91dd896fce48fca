"""Reads the stores for a request: tuned, predicted or neighbouring configs. Compiles nothing.

SQLAlchemy is loaded only where `fast_lookup` cannot answer from the store's file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.records.tuned import TuneRecord
from asmtune.store.fast_lookup import FastAnswer, Origin, StoredConfig, fast_lookup
from asmtune.store.lookup import Layer, StoredPrediction, reusable
from asmtune.store.shipped import find_tuned, shipped_of

if TYPE_CHECKING:
    from asmtune.store.safe_store import SafeStore
    from asmtune.tuning.request import TuningRequest


def nearest(
    layers: Mapping[Layer, Collection[TuneRecord]],
    request: TuningRequest,
    runs: Callable[[Config], bool] | None = None,
) -> tuple[Config, str] | None:
    """Return the winner of the nearest record whose winner is in the request's space; else None.

    With the config comes where it is from, in words. A space whose constraints name sizes differs
    from shape to shape, so that the configs are compared and not the spaces. A config of another
    device must be sure to fit this one.

    Args:
        layers: records of any keys, as `neighbours` takes them; those made with another source or
            Triton, or of a shape that does not compare, are left out.
        request: the launch.
        runs: compiles a config of which it is not sure that it fits, and returns whether it does;
            without it such a config is left out.
    """
    from asmtune.core.hardware.shipped import match_device
    from asmtune.store.neighbours import neighbours

    valid = {layer: [r for r in records if serves(r, request)] for layer, records in layers.items()}
    if not any(valid.values()):
        return None
    for near in neighbours(valid, request.key, match_device(request.key.device), distance):
        config = request.space.matching(near.record.winner, **request.problem.shape)
        if config is None:
            continue
        if near.surely_fits(config) or (runs is not None and runs(config)):
            # What won on another device may be another library's there.
            here = near.recorded_on is None
            winner = near.record.winner_among(request.alternatives)
            own = request.with_alternative_of(winner, config) if here else config
            return own, near.origin
    return None


def serves(record: TuneRecord, request: TuningRequest) -> bool:
    """Return whether a record's winner may be launched: of this source, and not hand-edited."""
    if record.key.kernel != request.key.kernel or record.winner.ir_override is not None:
        return False  # nothing checks a neighbour's hand-edited code here
    return reusable(record.provenance.source, record.provenance.triton, request.expected)


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


How = Literal["tuned", "known", "predicted", "small", "nearest", "fallback", "busy"]


@dataclass(frozen=True)
class Choice:
    """The config to launch.

    Attributes:
        config: the space's own config if it has an equal one, with its `pre_hook`.
        final: whether it counts for the rest of the process; else the next launch resolves
            the key again.
        how: "tuned" now, "known" to a store, "predicted" by the model, too "small" to tune, of the
            "nearest" stored neighbour, the "fallback", or a pick while another process is "busy"
            tuning it.
        record: with every timing, if it was tuned now; if it was known, only where it had to
            be read whole.
        compiled, timed: number of configs, if it was tuned now.
        seconds: that resolving took.
        origin: where a "nearest" config is from, in words.
    """

    config: Config
    final: bool
    how: How
    record: TuneRecord | None = None
    compiled: int = 0
    timed: int = 0
    seconds: float = 0.0
    origin: str = ""

    def __str__(self) -> str:
        return f"{self.config}, from {self.origin}" if self.origin else str(self.config)


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
        names, sure = self.request.alternatives, self._fast_answer.sure
        if stored is not None and stored.how == "tuned":
            # Where the winner cannot be called, the whole record has the times of the others.
            if stored.config.alternative is None or stored.config.alternative in names:
                yield stored.config, None
            else:
                sure = False
        for layer in (None,) if sure else (self._store, None):
            answer = find_tuned(key, expected, layer)
            if answer.outcome == "hit" and answer.record is not None:
                yield answer.record.winner_among(names), answer.record

    @property
    def lacks_alternatives(self) -> bool:
        """Return whether the user's own record has not tried one; what is shipped stays."""
        names, answer = self.request.alternatives.keys(), self._fast_answer
        if answer.sure:
            seen = answer.seen
            return seen is not None and seen.how == "tuned" and not names <= seen.tried
        return self._store.lookup(self.request.key, self.request.expected).lacks(names)

    @property
    def predicted(self) -> StoredConfig | None:
        """Return what an earlier process chose untimed for the key, as the space has it."""
        seen, request = self._fast_answer.seen, self.request
        stored: StoredConfig | StoredPrediction | None = None
        is_small = False
        if not self._fast_answer.sure:
            stored = self._store.find_prediction(request.key, request.expected)
            is_small = stored is not None and stored.is_small
        elif seen is not None and seen.how != "tuned":
            stored, is_small = seen, seen.how == "small"
        if stored is None:
            return None
        if is_small:  # it is decided anew for another space, without a warning
            own = request.space.matching(stored.config, **request.problem.shape)
        else:
            own = request.own(stored.config)
        how: Origin = "small" if is_small else "predicted"
        return None if own is None else StoredConfig(own, how, stored.predicted_us)

    def nearest(self, runs: Callable[[Config], bool] | None = None) -> Choice | None:
        """Return the config of the nearest neighbour, stored or shipped; see `nearest`."""
        key = self.request.key
        layers: dict[Layer, Sequence[TuneRecord]] = {
            "store": self._store.near(key, self.request.expected),
            "shipped": shipped_of(key.kernel),
        }
        near = nearest(layers, self.request, runs)
        return None if near is None else Choice(near[0], False, "nearest", origin=near[1])

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
            answer = vars(self)["answer"] = fast_lookup(
                where, request.key, request.expected, is_own=not self.settings.store_url
            )
        return answer
