"""What a report says besides its verdicts: of the default, and of what was guessed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from asmtune.core.config import Config
from asmtune.core.records.verdicts import Verdict
from asmtune.ir.ttir.assumptions import Doubt
from asmtune.ir.ttir.work import Work

DEFAULT_FAILS: Final = "the default config"
"""How the note begins that the default config cannot run."""

A_GUESS: Final = "predicted times rest on a guess: "
"""How a note begins that tells what could not be evaluated."""

_TOLD: Final = 3
"""Assumptions that a note lists: each tile has its own trips."""


def default_notes(verdicts: Sequence[Verdict], default: Config) -> tuple[str, ...]:
    """Why the default cannot run, if it cannot."""
    mine = next(verdict for verdict in verdicts if verdict.config == default)
    if mine.dropped_at in ("rules", "compile"):
        return (f"{DEFAULT_FAILS} ({default}) cannot run here: {mine.reasons[0]}",)
    return ()


def guess_notes(works: Iterable[Work]) -> tuple[str, ...]:
    """What could not be evaluated in any of the launches; the same of several is told once."""
    assumed: dict[Doubt, dict[str, None]] = {}
    for work in works:
        for doubt in work.doubts:
            same = replace(doubt, loop=None, assumed="")
            assumed.setdefault(same, {})[doubt.assumed] = None
    return tuple(
        f"{A_GUESS}{replace(doubt, assumed=_either(list(found)))}"
        for doubt, found in assumed.items()
    )


def _either(assumed: list[str]) -> str:
    listed = assumed[:_TOLD]
    return " or ".join([*listed, "others"] if len(assumed) > _TOLD else listed)
