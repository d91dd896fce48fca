"""A scorer's measured error: how much speed a cut of its ranking kept on unseen kernels.

A cut is a pair of limits: a rank, and a gap, which is how far a score may lie
below the ranking's best. Scores are logarithms of predicted times, so that the
gap means the same on every task; the rank bounds what a flat ranking keeps. One
limit alone keeps more: 0.99 of the best speed took 52 configs a task by gap, 30
by rank and 26 by both (`learned`, 178 recorded tasks of 37 kernels on an H200).

The tables are measured by `python -m benchmarks.replay_rows --error`, never fitted.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from asmtune.base.atomic_write import write_whole
from asmtune.base.errors import ParseError
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import match_device

FLOOR: Final = 5
"""Ranks that a gap never cuts: the first pick alone kept 0.90 of the best speed, five 0.96."""

MOST: Final = 100
"""Ranks beyond which a table chooses no cut: they cost more time than they can save."""


@dataclass(frozen=True)
class Cut:
    """Limits of a ranking, and how much they kept where it was measured.

    Attributes:
        count: rank of the last config kept, at most; infinite for no limit.
        gap: how far its score is below the best, at most; infinite for no limit.
        share: of the best speed that was kept, averaged over tasks, in [0, 1].
        dropped: how often nothing within `NOISE` of the best was kept, in [0, 1].
        low: share that all but one in ten tasks kept.
        kept: configs kept, averaged.
    """

    count: float
    gap: float
    share: float
    dropped: float
    low: float
    kept: float

    def size(self, gaps: Sequence[float]) -> int:
        """Return how many configs of a ranking the cut keeps, from their gaps in order."""
        return kept_ranks(self.count, bisect_right(gaps, self.gap), len(gaps))


UNLIKE_WEIGHT: Final = 0.75
"""Weight of kernels of kinds that the others lack, of all weight, whatever their number. On 16 such
kernels, each unseen, ten configs were promised 0.971 and kept 0.964; with half of the weight 0.976,
with none 0.990. Kernels like the others keep more than is promised then: 0.988 for 0.972."""


@dataclass(frozen=True)
class ErrorTable:
    """Results of every cut, each kernel weighing the same, or as `of` says.

    Attributes:
        tasks, kernels: numbers of those that were ranked.
        unlike: how many of the kernels are unlike the others, and have `UNLIKE_WEIGHT` together.
        cuts: by index of `counts`, then of `gaps`; with either, more is kept.
    """

    tasks: int
    kernels: int
    cuts: tuple[tuple[Cut, ...], ...]
    unlike: int = 0

    @property
    def counts(self) -> tuple[float, ...]:
        """Return the limits of the rank, in order; the last is infinite."""
        return tuple(row[0].count for row in self.cuts)

    @property
    def gaps(self) -> tuple[float, ...]:
        """Return the limits of the gap, in order; the last is infinite."""
        return tuple(cut.gap for cut in self.cuts[0])

    def cut(self, count: float = math.inf, gap: float = math.inf) -> Cut:
        """Return the largest measured cut within limits; count is at least 1, gap at least 0."""
        row = bisect_right(self.counts, count) - 1
        return self.cuts[row][bisect_right(self.gaps, gap) - 1]

    def cut_for(self, share: float) -> Cut:
        """Return the cut that kept fewest configs, of those that kept a share of the best speed.

        If no cut of at most `MOST` ranks kept that share, return the one that kept the most
        speed.
        """
        cuts = [cut for row in self.cuts for cut in row if cut.count <= MOST]
        enough = [cut for cut in cuts if cut.share >= share]
        if enough:
            return min(enough, key=lambda cut: (cut.kept, -cut.share))
        return max(cuts, key=lambda cut: (cut.share, -cut.kept))


def gaps_of(scores: Iterable[float]) -> list[float]:
    """Return how far each score is below the first, the best; 0 for equal ones, even infinite."""
    scores = list(scores)
    return [0.0 if score == scores[0] else scores[0] - score for score in scores]


def kept_ranks(count: float, within: int, ranked: int) -> int:
    """Return the ranks kept by a limit of the rank, if `within` configs are within the gap."""
    return int(min(ranked, count, max(within, FLOOR)))


ERROR_FILE: Final = Path(__file__).with_name("data") / "error.json"
"""The tables that ship with the package."""

FORMAT: Final = "asmtune-scorer-error"
VERSION: Final = 4

_MATRICES: Final = ("share", "dropped", "low", "kept")


@dataclass(frozen=True)
class Errors:
    """The tables of several scorers.

    Attributes:
        devices: those that the tasks were recorded on, by their drivers' names.
        provenance: origin of the timings, the compiler that the rankings were made with, and the
            names of the kernels "unlike" the others.
        tables: by (scorer, moment); the moment is "assembly" after compiling, "sketch" before.
    """

    devices: tuple[str, ...]
    provenance: Mapping[str, Any]
    tables: Mapping[tuple[str, str], ErrorTable]

    def source(self, scorer: str, moment: str = "assembly") -> str:
        """Describe the rows that a table was measured with."""
        table = self.tables[scorer, moment]
        tasks = f"{table.tasks} tasks of {table.kernels} kernels"
        other = f", {table.unlike} of other kinds with {UNLIKE_WEIGHT:.0%} of the weight,"
        other = other if table.unlike else ""
        return f"{scorer} on {tasks}{other} recorded on {' and '.join(self.devices)}"

    def other_device(self, target: Target | None) -> str | None:
        """Return the devices that the tasks were recorded on, if a target is not among them."""
        known = [match_device(device) for device in self.devices]
        same = target is None or any(here and here.name == target.name for here in known)
        return None if same else " and ".join(self.devices)

    def save(self, path: Path) -> None:
        """Write a file; equal tables give equal bytes.

        Raises:
            OSError: it cannot be written.
        """
        tables = [
            {"scorer": scorer, "moment": moment, **_to_json(table)}
            for (scorer, moment), table in sorted(self.tables.items())
        ]
        about = {"format": FORMAT, "version": VERSION, "devices": list(self.devices)}
        document = {**about, "provenance": dict(self.provenance), "tables": tables}
        write_whole(path, (json.dumps(document, allow_nan=False) + "\n").encode())

    @classmethod
    def load(cls, path: Path) -> Errors:
        """Read what `save` wrote.

        Raises:
            ParseError: there is no such file, or it is damaged.
        """
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            return cls(tuple(document["devices"]), dict(document["provenance"]), _tables(document))
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            stated = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise ParseError(
                f"scorers' errors {path}: {stated}; run python -m benchmarks.replay_rows --error"
            ) from error


@cache
def shipped_errors() -> Errors:
    """Return the tables that ship.

    Raises:
        ParseError: they are missing or damaged.
    """
    return Errors.load(ERROR_FILE)


def _to_json(table: ErrorTable) -> dict[str, Any]:
    """Return a table as JSON values; an infinite limit is null."""
    matrices = {
        name: [[round(getattr(cut, name), 4) for cut in row] for row in table.cuts]
        for name in _MATRICES
    }
    limits = {"counts": _limits(table.counts), "gaps": _limits(table.gaps)}
    counts = {"tasks": table.tasks, "kernels": table.kernels, "unlike": table.unlike}
    return {**counts, **limits, **matrices}


def _tables(document: Mapping[str, Any]) -> dict[tuple[str, str], ErrorTable]:
    if (document["format"], document["version"]) != (FORMAT, VERSION):
        raise ValueError(f"not {FORMAT} of version {VERSION}")
    return {(entry["scorer"], entry["moment"]): _table(entry) for entry in document["tables"]}


def _table(values: Mapping[str, Any]) -> ErrorTable:
    """Parse what `_to_json` wrote.

    Raises:
        ValueError: the matrices differ in size.
        LookupError: a part is missing.
    """
    counts, gaps = (
        tuple(math.inf if limit is None else limit for limit in values[name])
        for name in ("counts", "gaps")
    )
    matrices = [values[name] for name in _MATRICES]
    cuts = tuple(
        tuple(Cut(count, gap, *cell) for gap, *cell in zip(gaps, *rows, strict=True))
        for count, *rows in zip(counts, *matrices, strict=True)
    )
    return ErrorTable(values["tasks"], values["kernels"], cuts, values["unlike"])


def _limits(values: Iterable[float]) -> list[float | None]:
    return [None if math.isinf(value) else value for value in values]
