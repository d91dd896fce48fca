"""What is known of a space before anything is compiled: the state that a search begins with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final, TypeVar

from asmtune.core.config import Config
from asmtune.core.records.tuned import Measurement
from asmtune.core.records.verdicts import Verdict
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.prune.front import Front
from asmtune.store.codec import config_text
from asmtune.store.lookup import Remembered
from asmtune.tuning.presets import Effort
from asmtune.tuning.search.state import PriorTimings
from asmtune.tuning.transfer import Experience

T = TypeVar("T")

_PASSING: Final = frozenset({"timeout", "memory", "lost", "crash"})
"""Kinds of failures that may be the machine's doing: tried again."""


def initial_verdicts(
    funnel: Funnel, front: Front, configs: Sequence[Config], effort: Effort
) -> list[Verdict]:
    """A verdict on each config before compiling: of its sketch, where that is worth it."""
    sketches = (
        effort.strategy == "model"
        and len(configs) > effort.pace.first
        and funnel.scorer.ranks_before_compiling
    )
    if sketches:
        with ThreadPoolExecutor(1) as background:
            # Seconds, the first time that `learned` is used: it is fitted while workers sketch.
            ready = background.submit(getattr, funnel.scorer, "effective_name")
            verdicts = front.verdicts(configs, "sketch", funnel.sketches)
            ready.result()
        return verdicts
    return [front.by_rules(config) for config in configs]


def known_to(
    configs: Sequence[Config], remembered: Remembered, experience: Experience
) -> tuple[PriorTimings, dict[Config, Measurement]]:
    """What earlier runs, and other shapes, tell a search of these configs; and the timings.

    A config of the store has no `pre_hook`; the space's own takes its place. One with a derived
    cap, which is not of the space, is left out: it is derived again.
    """
    own = {config_text(config): config for config in configs}
    found = _keyed(((m.config, m) for m in remembered.measurements), own)
    measured = {config: replace(m, config=config) for config, m in found.items()}
    known = PriorTimings(
        seeds=tuple(_own(experience.seeds, own)),
        shunned=frozenset(_own(experience.shunned, own)),
        timings={config: m.median_us for config, m in measured.items()},
        failures=_keyed(((c, f) for c, f in remembered.failures if f.kind not in _PASSING), own),
    )
    return known, measured


def with_edited(known: PriorTimings, configs: Sequence[Config]) -> PriorTimings:
    """The same, with hand-edited configs among the first to be tried, which no model foresees."""
    edited = (config for config in configs if config.ir_override is not None)
    return replace(known, seeds=tuple(dict.fromkeys((*edited, *known.seeds))))


def _own(configs: Iterable[Config], own: Mapping[str, Config]) -> list[Config]:
    return [found for config in configs if (found := own.get(config_text(config))) is not None]


def _keyed(items: Iterable[tuple[Config, T]], own: Mapping[str, Config]) -> dict[Config, T]:
    found: dict[Config, Any] = {}
    for config, value in items:
        if (mine := own.get(config_text(config))) is not None:
            found[mine] = value
    return found
