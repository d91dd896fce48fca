"""Tables of scorers' errors: `asmtune model train --error` writes `score/data/error.json`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from asmtune.base.atomic_write import write_whole
from asmtune.base.errors import ParseError
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import match_device
from asmtune.predict.score.error import UNLIKE_WEIGHT, Cut, ErrorTable, Widening

ERROR_FILE: Final = Path(__file__).with_name("data") / "error.json"
"""The tables that ship with the package."""

FORMAT: Final = "asmtune-scorer-error"
VERSION: Final = 3

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
        """Return the devices that the tasks were recorded on, if a target is none of them."""
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
            return cls(tuple(document["devices"]), dict(document["provenance"]), tables)
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            stated = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise ParseError(
                f"scorers' errors {path}: {stated}; run asmtune model train --error"
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
    if not all(isinstance(name, str) for name in (*document["devices"], *sum(names, ()))):
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
    widening = None if table.widening is None else asdict(table.widening)
    counts = {"tasks": table.tasks, "kernels": table.kernels, "unlike": table.unlike}
    return {**counts, "widening": widening, **limits, **matrices}


def _table(values: Mapping[str, Any]) -> ErrorTable:
    """Parse what `_to_json` wrote.

    Raises:
        ValueError: it is not of that form, or a larger cut keeps less.
        LookupError: a part is missing.
    """
    counts = _axis("counts", values["counts"], 1)
    gaps = _axis("gaps", values["gaps"], 0)
    most = {"share": 1.0, "dropped": 1.0, "low": 1.0, "kept": math.inf}
    sizes = (len(counts), len(gaps))
    matrices = [_matrix(name, values[name], sizes, most[name]) for name in _MATRICES]
    cuts = tuple(
        tuple(Cut(count, gap, *(m[i][j] for m in matrices)) for j, gap in enumerate(gaps))
        for i, count in enumerate(counts)
    )
    tasks, kernels = _whole("tasks", values["tasks"]), _whole("kernels", values["kernels"])
    unlike = _whole("unlike", values["unlike"], 0)
    return ErrorTable(tasks, kernels, cuts, _read_widening(values["widening"]), unlike)


def _read_widening(values: Mapping[str, Any] | None) -> Widening | None:
    """Parse a widening; None for a scorer that is not trained.

    Raises:
        ValueError: numbers are missing, negative, or fall with the distance.
    """
    if values is None:
        return None
    names = ("ends", "loss", "dropped")
    ends, loss, dropped = (tuple(_number(f"widening {n}", v) for v in values[n]) for n in names)
    ordered = all(a <= b for line in (ends, loss, dropped) for a, b in pairwise(line))
    if len(ends) < 2 or not len(ends) == len(loss) == len(dropped) or not ordered:
        raise ValueError("widening has factors or ends that are too few or fall")
    usual = _number("widening usual", values["usual"])
    if min(usual, loss[0], dropped[0], ends[0]) < 0 or not usual or not ends[-1]:
        raise ValueError("widening has a negative number, or a distance of 0")
    return Widening(usual, ends, loss, dropped)


def _limits(values: Iterable[float]) -> list[float | None]:
    return [None if math.isinf(value) else value for value in values]


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} has {value!r}, which is no number")
    return value


def _whole(name: str, value: object, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} is {value!r}, not a whole number of {least} or more")
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
