"""Configs of a store, as those of the space that they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asmtune.core.config import Config
from asmtune.core.space.space import Space


def own_config(config: Config, space: Space, sizes: Mapping[str, Any]) -> Config | None:
    """The space's own config that equals one of a store, with its `pre_hook`; None without.

    One with a derived cap on registers is not of the space: it is the one without, capped.

    Args:
        config: without `pre_hook`.
        space: the configs.
        sizes: numbers by name that the space's constraints may name.
    """
    wanted, uncapped = config.to_dict(), config.with_cap(None).to_dict()
    without: Config | None = None
    for own in space.configs(**sizes):
        found = own.to_dict()
        if found == wanted:
            return own
        if without is None and found == uncapped:
            without = own
    return None if without is None else without.with_cap(config.maxnreg)
