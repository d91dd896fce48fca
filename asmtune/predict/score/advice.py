"""Advice against a bottleneck, with a config of the space that follows it.

A config follows the advice if its features say so, not by the names of its axes: "fewer warps" is
a smaller feature `num_warps`, whatever else changes. It must be predicted faster as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from asmtune.core.config import Config
from asmtune.core.records.verdicts import Features, Verdict
from asmtune.predict.score.roofline import ADVICE

FASTER: Final = 0.01
"""Least gain, as a share of the predicted time, for which a config is named."""

Helps = Callable[[Features, Features], bool]
"""Takes features of another config and of one's own; True if the other follows the advice."""


@dataclass(frozen=True)
class Suggestion:
    """A piece of advice, and a config that follows it.

    Attributes:
        text: in general.
        verdict: of the config that follows it with fewest changes, the fastest among equals; None
            if no ranked config follows it and is predicted faster.
        possible: False if no config can follow it: a narrower dtype, say, is not a choice of
            configs.
    """

    text: str
    verdict: Verdict | None
    possible: bool


def suggestions(own: Verdict, verdicts: Iterable[Verdict]) -> tuple[Suggestion, ...]:
    """Return two things to try against a config's bottleneck; none if it was not predicted.

    Args:
        own: the config.
        verdicts: of the space; those that were ranked are looked at.
    """
    if own.bottleneck is None or own.features is None or own.predicted_us is None:
        return ()
    limit = own.predicted_us * (1 - FASTER)
    faster = [
        v for v in verdicts if v.rank is not None and v.predicted_us and v.predicted_us < limit
    ]
    suggested: list[Suggestion] = []
    for text, helps in _advice(own.bottleneck, own.features):
        named = [s.verdict for s in suggested]
        doing = [] if helps is None else [v for v in faster if _does(helps, v, own.features)]
        free = [verdict for verdict in doing if verdict not in named]
        suggested.append(Suggestion(text, nearest(own.config, free), helps is not None))
    return tuple(suggested)


def _advice(bottleneck: str, own: Features) -> tuple[tuple[str, Helps | None], ...]:
    """Return what to try, with a test for configs that do so."""
    usual = tuple(zip(ADVICE[bottleneck], HELPS[bottleneck], strict=True))
    if own["spill_words"] and bottleneck in SPILLS_FEED:
        return (SPILLS, usual[0])
    return usual


def nearest(config: Config, verdicts: Iterable[Verdict]) -> Verdict | None:
    """Return the other config with fewest changes; among equals, the one predicted fastest."""

    def place(verdict: Verdict) -> tuple[int, float]:
        return changed(config, verdict.config), verdict.predicted_us or 0.0

    return min((v for v in verdicts if v.config != config), key=place, default=None)


def changed(one: Config, other: Config) -> int:
    """Return how many axes two configs differ in."""
    first, second = one.to_dict(), other.to_dict()
    return sum(first.get(name) != second.get(name) for name in {**first, **second})


def _does(helps: Helps, verdict: Verdict, own: Features) -> bool:
    return verdict.features is not None and helps(verdict.features, own)


def _less(name: str) -> Helps:
    return lambda other, own: other[name] < own[name]


def _less_in_all(name: str) -> Helps:
    return lambda other, own: other[name] * other["programs"] < own[name] * own["programs"]


def _hides_more(other: Features, own: Features) -> bool:
    deeper = other["num_stages"] > own["num_stages"]
    return deeper or other["programs_per_sm"] > own["programs_per_sm"]


def _smaller_tiles(other: Features, own: Features) -> bool:
    return other["programs"] > own["programs"]


_LARGER_TILES: Final = _less("programs")
_FEWER_WARPS: Final = _less("num_warps")

HELPS: Final[Mapping[str, tuple[Helps | None, Helps | None]]] = {
    "tensor": (None, _less("tail")),
    "issue": (_less_in_all("program_instructions"), _FEWER_WARPS),
    "shared": (_less_in_all("shared_cycles"), _FEWER_WARPS),
    "L1": (None, _less_in_all("l1_cycles")),
    "special": (None, None),
    "L2": (_less_in_all("program_l2_bytes"), None),
    "DRAM": (None, None),
    "start": (_LARGER_TILES, None),
    "latency": (_hides_more, _smaller_tiles),
    "launch": (None, None),
}
"""For each piece of `ADVICE`, in its order, a test for configs that follow it; None if no
config can, since it asks for another kernel, dtype or layout."""

SPILLS: Final = (
    "fewer spilled registers: a looser maxnreg, a smaller tile or more warps",
    _less("spill_words"),
)
"""Advice that goes first if registers spill and spilling takes part in the bottleneck."""

SPILLS_FEED: Final = frozenset({"issue", "L1", "latency"})
"""Bottlenecks that loads and stores of spilled words add to."""
