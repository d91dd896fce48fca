"""Which job this process is a rank of, and the config of a launch that all its ranks use."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.runtime.misses.answers import Choice, Miss
from asmtune.runtime.misses.resolver import Resolver

if TYPE_CHECKING:
    from asmtune.runtime.ranks.agreement import RankGroup


def current_job() -> RankGroup | None:
    """The job that this process is a rank of; None without one, or where it is the only rank.

    Imports no PyTorch: who has not loaded `torch.distributed` is no rank.
    """
    group: Any = sys.modules.get("torch.distributed.distributed_c10d")
    if group is None or not group.is_initialized() or group.get_world_size() < 2:
        return None
    from asmtune.runtime.ranks.agreement import RankGroup

    store = group._get_default_store()
    return None if store is None else RankGroup(store, group.get_rank())


def resolve(resolver: Resolver, miss: Miss, *, capturing: bool = False) -> Choice:
    """As `Resolver.resolve`, but for a config that all ranks of this process's job use.

    Where a launch is recorded (`capturing`), what it is recorded with counts for all ranks.
    Nothing is switched later: a config that was agreed on is final.
    """
    job = current_job()
    if job is None:
        return resolver.resolve(miss, capturing=capturing)
    from asmtune.runtime.ranks.agreement import AgreementKey, RankPace, Resolvers
    from asmtune.tuning.identity import expected_of

    made: list[Choice] = []

    def chosen(choice: Choice) -> Config:
        made.append(choice)
        return choice.config

    def known() -> Config | None:
        choice = resolver.resolve(miss, capturing=True)
        return chosen(choice) if choice.final else None

    def pick() -> Config:
        return chosen(resolver.resolve(miss, capturing=True))

    expected = expected_of(miss.problem, miss.space, resolver.options.choices)
    matter = AgreementKey(miss.key, expected, lambda: miss.space.configs(**miss.problem.shape))
    if capturing:
        config = job.offered(matter, pick())
    else:
        ways = Resolvers(known=known, resolve=lambda: chosen(resolver.resolve(miss)), fallback=pick)
        config = job.agreed(matter, ways, RankPace(wait_s=Settings.from_environment().wait_s))
    own = next((choice for choice in made if choice.config is config), None)
    if own is None:
        return Choice(config, True, "known")
    return replace(own, final=own.final or not capturing)
