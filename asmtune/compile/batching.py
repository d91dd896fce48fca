"""Configs in shares, in an order in which a worker reuses what it made."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TypeVar

from asmtune.compile.lower import LowerRequest
from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure

Pair = tuple[int, LowerRequest | Failure]
"""A config's position, with its request."""

Lower = Callable[[Config], LowerRequest | Failure]
K = TypeVar("K", bound=Hashable)


def families(configs: Sequence[Config], lower: Lower) -> Iterator[list[Pair]]:
    """Configs whose PTX is likely the same but for the register cap, one family after another.

    Args:
        configs: in the order in which they are wanted.
        lower: makes a request, when its family's turn comes.
    """
    for positions in _groups(configs, _without_stages):
        found: dict[int, list[Pair]] = {}
        for position in positions:
            request = lower(configs[position])
            # Without a product in a loop stages change nothing.
            pipelined = isinstance(request, LowerRequest) and request.has_dot
            stages = configs[position].num_stages if pipelined else 0
            found.setdefault(stages, []).append((position, request))
        yield from found.values()


def tiles(
    configs: Sequence[Config], lower: Lower, most: Callable[[int], int]
) -> Iterator[list[Pair]]:
    """Configs of one tile, those beside each other that differ in the register cap alone.

    Args:
        configs: in the order in which they are wanted.
        lower: makes a request, when its share's turn comes.
        most: configs a share by how many are left, but for those that differ in the cap
            alone, which stay together.
    """
    left = len(configs)
    for positions in _groups(configs, lambda config: tuple(sorted(config.kwargs.items()))):
        share: list[Pair] = []
        tile = [configs[position] for position in positions]
        for family in _groups(tile, lambda config: config.with_cap(None)):
            if share and len(share) + len(family) > most(left):
                yield share
                left -= len(share)
                share = []
            share += [(positions[place], lower(tile[place])) for place in family]
        yield share
        left -= len(share)


def _groups(configs: Sequence[Config], key: Callable[[Config], Hashable]) -> list[list[int]]:
    """Positions of configs of equal keys, in the order of the first of each."""
    found: dict[Hashable, list[int]] = {}
    for position, config in enumerate(configs):
        found.setdefault(key(config), []).append(position)
    return list(found.values())


def _without_stages(config: Config) -> Config:
    return Config(config.kwargs, config.num_warps, num_ctas=config.num_ctas)
