"""What a lookup answers, and when a record still holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from asmtune.records import Provenance, TuneRecord

Outcome = Literal["hit", "miss", "stale", "corrupt"]
Layer = Literal["store", "shipped"]

DIGITS_SHOWN: Final = 12
"""How much of a digest messages and tables show."""


class StoreWarning(UserWarning):
    """Something in the store was damaged and has been set aside; work goes on."""


@dataclass(frozen=True)
class Lookup:
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


def judged(record: TuneRecord, expected: Provenance, layer: Layer) -> Lookup:
    """A record found, as a hit or as stale."""
    detail = "; ".join(differences(record.provenance, expected))
    return Lookup("stale" if detail else "hit", record, detail, layer)


def differences(found: Provenance, expected: Provenance) -> list[str]:
    """One text for each of source, space and Triton's major.minor that differs.

    Torch, asmtune and the driver may move: they do not change which binary a
    config gives, and re-tuning after each driver update costs more than it wins.
    """
    pairs = {
        "source": (found.source, expected.source),
        "space": (found.space, expected.space),
        "triton": (_minor(found.triton), _minor(expected.triton)),
    }
    return [
        f"{name} differs: recorded {_short(old)}, now {_short(new)}"
        for name, (old, new) in pairs.items()
        if old != new
    ]


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _short(value: str) -> str:
    return value[:DIGITS_SHOWN] or "none"


@dataclass(frozen=True)
class Finding:
    """One thing that `Store.verify` found wrong.

    Attributes:
        place: "file", or the record: digits of its key and its kernel.
        problem: what is wrong there.
    """

    place: str
    problem: str

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}"
