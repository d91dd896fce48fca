"""What a lookup answers, and when a record still holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement, Provenance, TuneKey, TuneRecord

Outcome = Literal["hit", "miss", "stale", "corrupt"]
Layer = Literal["store", "shipped"]

DIGITS_SHOWN: Final = 12
"""How much of a digest messages and tables show."""


class StoreWarning(UserWarning):
    """Something was wrong with the store; work goes on, without what is lost."""


@dataclass(frozen=True)
class StoreLookup:
    """The answer to a lookup.

    Attributes:
        outcome: "hit" (use it), "miss" (nothing there), "stale" (made with
            another source, space or Triton) or "corrupt" (unreadable).
        record: of a hit; of a stale one too, since its timings may serve.
        detail: what was missed, what differs or what is wrong; empty at a hit.
        layer: where the answer comes from.
    """

    outcome: Outcome
    record: TuneRecord | None = None
    detail: str = ""
    layer: Layer = "store"


@dataclass(frozen=True)
class Remembered:
    """What earlier runs of a key found that still holds, one outcome a config.

    Configs come without `pre_hook`: match them by `Config.to_dict()`.

    Attributes:
        measurements: configs timed.
        failures: configs that failed, with what of. A timeout, or a lack of
            memory, may have been the machine's and not the config's.
    """

    measurements: tuple[Measurement, ...] = ()
    failures: tuple[tuple[Config, Failure], ...] = ()


@dataclass(frozen=True)
class StoredPrediction:
    """What the model chose for a key, without timing anything.

    Attributes:
        key: of the launch.
        config: the model's first pick; without `pre_hook` where it comes from a store.
        predicted_us: microseconds of a launch with it; None where nothing says.
        provenance: what it was made with.
    """

    key: TuneKey
    config: Config
    predicted_us: float | None
    provenance: Provenance


@dataclass(frozen=True)
class Unfinished:
    """A tuning run that has not ended, or was cut off.

    Attributes:
        key: what it tunes.
        source, triton: what it was made with, as in `Provenance`.
        timed, failed: rows kept: configs, and one timed twice counts twice.
        date: of the newest, ISO 8601.
    """

    key: TuneKey
    source: str
    triton: str
    timed: int
    failed: int
    date: str


def judged(record: TuneRecord, expected: Provenance, layer: Layer) -> StoreLookup:
    """A record found, as a hit or as stale."""
    detail = "; ".join(differences(record.provenance, expected))
    return StoreLookup("stale" if detail else "hit", record, detail, layer)


def differences(found: Provenance, expected: Provenance) -> list[str]:
    """One text for each of source, space and Triton's major.minor that differs.

    Torch, asmtune and the driver may move: they do not change which binary a
    config gives, and re-tuning after each driver update costs more than it wins.
    """
    pairs = {
        "source": (found.source, expected.source),
        "space": (found.space, expected.space),
        "triton": (minor(found.triton), minor(expected.triton)),
    }
    return [
        f"{name} differs: recorded {_short(old)}, now {_short(new)}"
        for name, (old, new) in pairs.items()
        if old != new
    ]


def reusable(source: str, triton: str, now: Provenance) -> bool:
    """Whether timings made with a source and a Triton hold now, whatever the space."""
    return source == now.source and minor(triton) == minor(now.triton)


def minor(version: str) -> str:
    """Major and minor of a version: what decides which binary a config gives."""
    return ".".join(version.split(".")[:2])


def _short(value: str) -> str:
    return value[:DIGITS_SHOWN] or "none"


@dataclass(frozen=True)
class StoreFinding:
    """One thing that `Store.verify` found wrong.

    Attributes:
        place: "file", or the record: digits of its key and its kernel.
        problem: what is wrong there.
    """

    place: str
    problem: str

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}"
