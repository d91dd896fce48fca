"""Reads the stores for a request: tuned or predicted configs. Compiles nothing.

SQLAlchemy is loaded only where `fast_lookup` cannot answer from the store's file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.records.tuned import TuneRecord
from asmtune.store.interchange import find_tuned
from asmtune.store.lookup import FastAnswer, Origin, StoredConfig, StoredPrediction, fast_lookup

if TYPE_CHECKING:
    from asmtune.store.safe_store import SafeStore
    from asmtune.tuning.request import TuningRequest


How = Literal["tuned", "known", "provisional", "predicted", "small", "fallback", "busy"]


@dataclass(frozen=True)
class Choice:
    """The config to launch.

    Attributes:
        config: the space's own config if it has an equal one, with its `pre_hook`.
        final: whether it counts for the rest of the process; else the next launch resolves
            the key again.
        until_tuned: whether it counts until the background has tuned the key, or has room for it.
        how: "tuned" now, "known" to a store, "provisional" (the winner of another Triton's record),
            "predicted" by the model, too "small" to tune, the "fallback", or a pick while another
            process is "busy" tuning it, or the background with others.
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
    until_tuned: bool = False


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
    def of_other_triton(self) -> TuneRecord | None:
        """Return the record of the key that another Triton made; None where a launch has none."""
        fast = self._fast_answer
        layer = None if fast.sure and not fast.has_record else self._store
        answer = find_tuned(self.request.key, self.request.expected, layer)
        return answer.record if answer.is_candidate else None

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
