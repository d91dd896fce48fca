"""A scorer's measured error: how much speed a cut of its ranking kept on unseen kernels.

A cut is a pair of limits: a rank, and a gap, which is how far a score may lie
below the ranking's best. Scores are logarithms of predicted times, so that the
gap means the same on every task; the rank bounds what a flat ranking keeps. One
limit alone keeps more: 0.99 of the best speed took 52 configs a task by gap, 30
by rank and 26 by both (`learned`, 178 recorded tasks of 37 kernels on an H200).

The tables are measured, never fitted, and hold for launches like the recorded ones. `asmtune
train --error` writes them to `score/data/error.json`.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from asmtune.base.atomic_write import write_whole
from asmtune.base.errors import ParseError
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import match_device

NOISE: Final = 0.01
"""Timings within 1% count as one speed: the best is kept if anything this near to it is kept."""

FLOOR: Final = 5
"""Ranks that a gap never cuts: the first pick alone kept 0.90 of the best speed, five 0.96."""

COUNTS: Final = (1, 2, 3, 5, 7, 10, 15, 20, 25, 30, 40, 50, 70, 100, 150, 200, math.inf)
GAPS: Final = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5, math.inf)
"""The limits of the cuts that are measured."""

MOST: Final = 100
"""Ranks beyond which a table chooses no cut: they cost more time than they can save."""


@dataclass(frozen=True)
class RankedTask:
    """A ranking of measured configs by a scorer that had not seen their kernel.

    `slowdown` is the logarithm of each config's time over the task's best.
    """

    kernel: str
    scores: Sequence[float]
    slowdown: Sequence[float]


@dataclass(frozen=True)
class Cut:
    """Limits of a ranking, and how much they kept where it was measured.

    Attributes:
        count: rank of the last config kept, at most; infinite for no limit.
        gap: how far its score is below the best, at most; infinite for no limit.
        share: of the best speed that was kept, averaged over tasks, in [0, 1].
        dropped: how often nothing within `NOISE` of the best was kept, in [0, 1].
        kept: configs kept, averaged.
    """

    count: float
    gap: float
    share: float
    dropped: float
    kept: float

    def size(self, gaps: Sequence[float]) -> int:
        """Return how many configs of a ranking the cut keeps, from their gaps in order."""
        return _size(self.count, bisect_right(gaps, self.gap), len(gaps))


@dataclass(frozen=True)
class ErrorTable:
    """Results of every cut, each kernel weighing the same.

    Attributes:
        tasks, kernels: numbers of those that were ranked.
        cuts: by index of `counts`, then of `gaps`; with either, more is kept.
    """

    tasks: int
    kernels: int
    cuts: tuple[tuple[Cut, ...], ...]

    @property
    def counts(self) -> tuple[float, ...]:
        """Limits of the rank, in order; the last is infinite."""
        return tuple(row[0].count for row in self.cuts)

    @property
    def gaps(self) -> tuple[float, ...]:
        """Limits of the gap, in order; the last is infinite."""
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

    @classmethod
    def of(cls, tasks: Sequence[RankedTask]) -> ErrorTable:
        """Measure every cut on ranked tasks of at least one kernel."""
        by_kernel: dict[str, list[list[tuple[float, float, int]]]] = {}
        for task in tasks:
            by_kernel.setdefault(task.kernel, []).append(_outcomes(task))
        kernels = [[_means(at) for at in zip(*own, strict=True)] for own in by_kernel.values()]
        means = [_means(at) for at in zip(*kernels, strict=True)]
        rows = [means[at : at + len(GAPS)] for at in range(0, len(means), len(GAPS))]
        cuts = [
            tuple(Cut(count, gap, *mean) for gap, mean in zip(GAPS, row, strict=True))
            for count, row in zip(COUNTS, rows, strict=True)
        ]
        return cls(len(tasks), len(by_kernel), tuple(cuts))


def gaps_of(scores: Iterable[float]) -> list[float]:
    """Return how far each score is below the first, the best; 0 for equal ones, even infinite."""
    scores = list(scores)
    return [0.0 if score == scores[0] else scores[0] - score for score in scores]


def _size(count: float, within: int, ranked: int) -> int:
    """Return the ranks kept by a limit of the rank, if `within` configs are within the gap."""
    return int(min(ranked, count, max(within, FLOOR)))


def _outcomes(task: RankedTask) -> list[tuple[float, float, int]]:
    """Return share kept, whether the best is dropped, and configs kept, by count, then by gap."""
    order = sorted(range(len(task.scores)), key=lambda i: -task.scores[i])
    gaps = gaps_of(task.scores[i] for i in order)
    least = math.inf
    best = [least := min(least, float(task.slowdown[i])) for i in order]
    sizes = [_size(c, bisect_right(gaps, g), len(gaps)) for c in COUNTS for g in GAPS]
    return [(math.exp(-best[n - 1]), float(best[n - 1] > NOISE), n) for n in sizes]


def _means(rows: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple(math.fsum(column) / len(rows) for column in zip(*rows, strict=True))


ERROR_FILE: Final = Path(__file__).with_name("data") / "error.json"
"""The tables that ship with the package."""

FORMAT: Final = "asmtune-scorer-error"
VERSION: Final = 1

_MATRICES: Final = ("share", "dropped", "kept")


@dataclass(frozen=True)
class Errors:
    """The tables of several scorers.

    Attributes:
        device: that the tasks were recorded on.
        provenance: origin of the timings, and the compiler that the rankings were made with.
        tables: by (scorer, moment); the moment is "assembly" after compiling, "sketch" before.
    """

    device: str
    provenance: Mapping[str, Any]
    tables: Mapping[tuple[str, str], ErrorTable]

    def source(self, scorer: str, moment: str = "assembly") -> str:
        """Describe the rows that a table was measured with."""
        table = self.tables[scorer, moment]
        tasks = f"{table.tasks} tasks of {table.kernels} kernels"
        return f"{scorer} on {tasks} recorded on {self.device}"

    def other_device(self, target: Target | None) -> str | None:
        """Return the device that the tasks were recorded on, if a target is another."""
        here = match_device(self.device)
        same = target is None or (here is not None and here.name == target.name)
        return None if same else self.device

    def save(self, path: Path) -> None:
        """Writes a file; equal tables give equal bytes.

        Raises:
            OSError: it cannot be written.
        """
        tables = [
            {"scorer": scorer, "moment": moment, **_to_json(table)}
            for (scorer, moment), table in sorted(self.tables.items())
        ]
        about = {"format": FORMAT, "version": VERSION, "device": self.device}
        document = {**about, "provenance": dict(self.provenance), "tables": tables}
        write_whole(path, (json.dumps(document, allow_nan=False) + "\n").encode())

    @classmethod
    def load(cls, path: Path) -> Errors:
        """Read what `save` wrote; wrong values are refused.

        Raises:
            ParseError: there is no such file, or it is damaged.
        """
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            _check_form(document)
            tables = {
                (entry["scorer"], entry["moment"]): _table(entry) for entry in document["tables"]
            }
            return cls(document["device"], dict(document["provenance"]), tables)
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            stated = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise ParseError(
                f"scorers' errors {path}: {stated}; run asmtune train --error"
            ) from error


@cache
def shipped_errors() -> Errors:
    """Return the tables that ship.

    Raises:
        ParseError: they are missing or damaged.
    """
    return Errors.load(ERROR_FILE)


def _check_form(document: Mapping[str, Any]) -> None:
    if (document["format"], document["version"]) != (FORMAT, VERSION):
        raise ValueError(f"not {FORMAT} of version {VERSION}")
    names = [(entry["scorer"], entry["moment"]) for entry in document["tables"]]
    if not all(isinstance(name, str) for name in (document["device"], *sum(names, ()))):
        raise ValueError("a device, scorer or moment is no text")
    if len(set(names)) < len(names):
        raise ValueError("a scorer has two tables for one moment")


def _to_json(table: ErrorTable) -> dict[str, Any]:
    """Return a table as JSON values; an infinite limit is null."""
    matrices = {
        name: [[round(getattr(cut, name), 4) for cut in row] for row in table.cuts]
        for name in _MATRICES
    }
    limits = {"counts": _limits(table.counts), "gaps": _limits(table.gaps)}
    return {"tasks": table.tasks, "kernels": table.kernels, **limits, **matrices}


def _table(values: Mapping[str, Any]) -> ErrorTable:
    """Parse what `_to_json` wrote.

    Raises:
        ValueError: it is not of that form, or a larger cut keeps less.
        LookupError: a part is missing.
    """
    counts = _axis("counts", values["counts"], 1)
    gaps = _axis("gaps", values["gaps"], 0)
    most = {"share": 1.0, "dropped": 1.0, "kept": math.inf}
    sizes = (len(counts), len(gaps))
    share, dropped, kept = (_matrix(n, values[n], sizes, most[n]) for n in _MATRICES)
    cuts = tuple(
        tuple(Cut(count, gap, share[i][j], dropped[i][j], kept[i][j]) for j, gap in enumerate(gaps))
        for i, count in enumerate(counts)
    )
    return ErrorTable(_whole("tasks", values["tasks"]), _whole("kernels", values["kernels"]), cuts)


def _limits(values: Iterable[float]) -> list[float | None]:
    return [None if math.isinf(value) else value for value in values]


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} has {value!r}, which is no number")
    return value


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} is {value!r}, not a whole number above 0")
    return value


def _axis(name: str, values: Sequence[object], first: float) -> tuple[float, ...]:
    """Parse limits in strict order, from a given one to infinity."""
    if not values or values[-1] is not None:
        raise ValueError(f"{name} does not end in null, which is no limit")
    limits = (*(_number(name, value) for value in values[:-1]), math.inf)
    if limits[0] != first or any(a >= b for a, b in pairwise(limits)):
        raise ValueError(f"{name} does not go up from {first:g}")
    return limits


def _matrix(
    name: str, rows: Sequence[Sequence[object]], sizes: tuple[int, int], most: float
) -> list[list[float]]:
    """Parse a number for each cut; with larger limits `dropped` falls and the others grow."""
    if len(rows) != sizes[0] or any(len(row) != sizes[1] for row in rows):
        raise ValueError(f"{name} is not {sizes[0]} x {sizes[1]}")
    matrix = [[_number(name, value) for value in row] for row in rows]
    lines = [*matrix, *zip(*matrix, strict=True)]
    sign = -1 if name == "dropped" else 1
    ordered = all(sign * a <= sign * b for line in lines for a, b in pairwise(line))
    if not ordered or any(not 0 <= value <= most for row in matrix for value in row):
        raise ValueError(f"{name} is out of its range, or a larger cut keeps less")
    return matrix
