"""`KeysInProgress`: the keys of one decorator that the background tunes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from asmtune.base.errors import AsmtuneError
from asmtune.core.failures import guarded
from asmtune.core.records.artifacts import Failure
from asmtune.runtime.misses.lookups import Choice, MissLookup
from asmtune.store.codec import key_digest

if TYPE_CHECKING:
    from asmtune.tuning.request import TuningRequest


class KeysInProgress:
    """Choices of keys that are or were tuned in the background.

    Args:
        tune: tunes a key, in the background's thread, on copies of the arguments.
        warn: says that a key is not tuned, why, and what its launches go on with.
        on_tuned: gets each key's choice, in that thread. It is final, unless another process tunes
            the key.
    """

    def __init__(
        self,
        tune: Callable[[MissLookup], Choice],
        warn: Callable[[MissLookup, str, Choice], None],
        on_tuned: Callable[[TuningRequest, Choice], None],
    ) -> None:
        self._tune, self._warn, self._on_tuned = tune, warn, on_tuned
        self._choices: dict[str, Choice] = {}
        self._lock = threading.Lock()

    def find(self, lookup: MissLookup) -> Choice | None:
        """Return the pick of a key that is tuned, or its choice; None for another key."""
        # No digest is made in a process that tunes nothing in the background.
        return self._choices.get(key_digest(lookup.request.key)) if self._choices else None

    def begin(self, lookup: MissLookup, pick: Choice) -> Choice:
        """Queue a key, unless it or many are queued; return what its launches go on with."""
        from asmtune.runtime.misses.background import queue_of, tune_later

        digest = key_digest(lookup.request.key)
        with self._lock:
            if digest in self._choices:
                return self._choices[digest]
            if queue_of(lookup.request.key.device).is_full:
                return replace(pick, how="busy")
            self._choices[digest] = pick
            # Capturing `lookup` would keep the caller's tensors alive until then.
            settings = lookup.settings

            def settle(copy: TuningRequest) -> None:
                self._settle(MissLookup(copy, settings), pick)

            try:
                if not tune_later(lookup.request, settle):
                    self._choices[digest] = replace(pick, final=True)
            except BaseException:  # Ctrl-C, say: the next launch queues it
                del self._choices[digest]
                raise
            return self._choices[digest]

    def _settle(self, lookup: MissLookup, pick: Choice) -> None:
        """Find the final choice of a key; failures become warnings."""
        outcome, digest = self._attempt(lookup), key_digest(lookup.request.key)
        if isinstance(outcome, str):
            self._warn(lookup, f"not tuned in the background, {outcome}", pick)
            outcome = replace(pick, final=True)
        with self._lock:
            if outcome.final:
                self._choices[digest] = outcome
            else:  # another process still tunes it: the next launch asks again
                del self._choices[digest]
        self._on_tuned(lookup.request, outcome)

    def _attempt(self, lookup: MissLookup) -> Choice | str:
        try:
            outcome = guarded("tune", lambda: self._tune(lookup))
        except AsmtuneError as error:
            return str(error)
        return str(outcome) if isinstance(outcome, Failure) else outcome
