"""Which config another one is held against, as the command line asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from asmtune.base.errors import InputError
from asmtune.core.config import Config
from asmtune.core.inputs.assignments import parse_assignments
from asmtune.core.records.tuned import TuneRecord
from asmtune.core.records.verdicts import Verdict
from asmtune.store.lookup import StoreLookup

BEST: Final = "best"
DEFAULT: Final = "default"
STORED: Final = "stored"
WORDS: Final = (BEST, DEFAULT, STORED)


@dataclass(frozen=True)
class Rival:
    """The other config.

    Attributes:
        config: it.
        words: what it is.
    """

    config: Config
    words: str


def named_config(text: str, option: str, base: Config) -> Config:
    """The config of assignments; what they leave out is that of another.

    Raises:
        InputError: a part is no assignment, or there is no such axis.
        SpaceError: an option is no positive whole number.
    """
    values = parse_assignments(text, option)
    known = {**base.to_dict(), "num_ctas": 1, "maxnreg": None}
    unknown = [name for name in values if name not in known]
    if unknown:
        raise InputError(f"{option}: no axis {unknown[0]!r}; the axes are {', '.join(known)}")
    return Config.from_dict({**base.to_dict(), **values})


def rival_before(
    text: str | None, chosen: Config, default: Config, stored: StoreLookup
) -> Rival | None:
    """The other config, where it is known before anything is compiled.

    Args:
        text: as `--against` gives it; None for the stored winner, if there is another.
        chosen: the config that is explained.
        default: of the space.
        stored: what the stores hold.

    Raises:
        InputError: it cannot be what was asked for, or is the config that is explained.
    """
    record = stored.record if stored.outcome == "hit" else None
    if text is None:
        winner = None if record is None else _stored(record)
        return None if winner is None or winner.config == chosen else winner
    if text == STORED:
        if record is None:
            raise InputError(f"--against stored: {_missing(stored)}; name a config, or {BEST}")
        return _other(_stored(record), text, chosen)
    if text == DEFAULT:
        return _other(Rival(default, "the default"), text, chosen)
    if text == BEST:
        return None
    if "=" not in text:
        words = ", ".join(WORDS)
        raise InputError(f"--against: {text!r} is neither NAME=VALUE,... nor one of {words}")
    config = named_config(text, "--against", chosen)
    return _other(Rival(config, "the one named"), text, chosen)


def rival_after(
    text: str | None, chosen: Config, verdicts: Sequence[Verdict], scorer: str
) -> Rival | None:
    """The best of what was ranked, or to the best itself the next; None where there is none.

    Raises:
        InputError: the best was asked for, and is the config that is explained.
    """
    ranked = {verdict.rank: verdict.config for verdict in verdicts if verdict.rank is not None}
    if 1 not in ranked:
        return None
    best = Rival(ranked[1], f"the winner by {scorer}")
    if best.config != chosen:
        return best
    if text == BEST:
        return _other(best, BEST, chosen)
    return Rival(ranked[2], f"the runner-up by {scorer}") if 2 in ranked else None


def measured(record: TuneRecord | None, config: Config) -> float | None:
    """Microseconds that a record has of a config; stored configs come without hooks."""
    values = config.to_dict()
    timed = record.measurements if record else ()
    return next((m.median_us for m in timed if m.config.to_dict() == values), None)


def _missing(stored: StoreLookup) -> str:
    if stored.outcome == "miss":
        return "no config was tuned for this kernel, shape, dtype and device"
    return f"what is stored for this key is {stored.outcome}: {stored.detail}"


def _stored(record: TuneRecord) -> Rival:
    when = record.provenance.date[:10]
    return Rival(record.winner, f"the stored winner, tuned on {record.key.device}, {when}")


def _other(rival: Rival, text: str, chosen: Config) -> Rival:
    if rival.config == chosen:
        raise InputError(
            f"--against {text}: it is the config that is explained ({chosen}); name another"
        )
    return rival
