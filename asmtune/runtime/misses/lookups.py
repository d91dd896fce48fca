"""What is stored for a miss: tuned, predicted, or of a neighbour. Nothing is compiled for it.

What loads SQLAlchemy does so only where one look at the store's file cannot tell.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.records.tuned import Provenance
from asmtune.runtime.misses.answers import Choice, Miss
from asmtune.runtime.misses.nearest import nearest
from asmtune.store.fast_lookup import FastAnswer, StoredConfig, fast_lookup
from asmtune.store.shipped import find_tuned, shipped_lookup, shipped_of


@dataclass(frozen=True)
class MissLookup:
    """Answers of the stores for one miss.

    Attributes:
        miss: the launch.
        expected: how it would be tuned now.
        settings: where the user's store is.
    """

    miss: Miss
    expected: Provenance
    settings: Settings

    def tuned(self) -> Choice | None:
        """What the user's store, or else the shipped configs, have for the key."""
        key, seen = self.miss.key, self._glimpse.seen
        if seen is not None and seen.how == "tuned":
            return Choice(self.own(seen.config), True, "known")
        if self._glimpse.sure:
            found = shipped_lookup(key, self.expected)
        else:
            from asmtune.store.safe_store import open_user_store

            found = find_tuned(key, self.expected, open_user_store(self.settings))
        if found.outcome != "hit" or found.record is None:
            return None
        return Choice(self.own(found.record.winner), True, "known", found.record)

    @functools.cached_property
    def predicted(self) -> StoredConfig | None:
        """What an earlier process predicted for the key; with the space's own config."""
        seen = self._glimpse.seen
        if not self._glimpse.sure:
            from asmtune.store.safe_store import open_user_store

            made = open_user_store(self.settings).find_prediction(self.miss.key, self.expected)
            seen = (
                None if made is None else StoredConfig(made.config, "predicted", made.predicted_us)
            )
        if seen is None or seen.how != "predicted":
            return None
        return StoredConfig(self.own(seen.config), "predicted", seen.predicted_us)

    def nearest(self) -> Config | None:
        """The config of the nearest neighbour, of the user's store or among what is shipped."""
        from asmtune.store.safe_store import open_user_store

        key = self.miss.key
        own = open_user_store(self.settings).records(key.kernel, key.device)
        return nearest([*own, *shipped_of(key.kernel)], self.miss, self.expected)

    def own(self, config: Config) -> Config:
        """The space's own config for a stored one; itself where it is none of the space."""
        miss = self.miss
        return miss.space.matching(config, **miss.problem.shape) or config

    @functools.cached_property
    def _glimpse(self) -> FastAnswer:
        return fast_lookup(self.settings.store_where, self.miss.key, self.expected)
