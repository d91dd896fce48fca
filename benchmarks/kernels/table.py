"""File of the table: rows of one run or of several, each with the run that it belongs to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from benchmarks.harness import RESULTS, provenance, write
from benchmarks.kernels.identities import source_of
from benchmarks.kernels.plan import Place
from benchmarks.kernels.rows import summary

FILE = RESULTS / "kernels.json"

Row = Mapping[str, Any]


@dataclass
class Table:
    """Rows of the file, in order of the kernels' names and of their places.

    Attributes:
        rows: rows by the names of their places.
        runs: where the rows come from; a row's `run` is the place of its own among them.
    """

    rows: dict[str, Row] = field(default_factory=dict)
    runs: list[Mapping[str, Any]] = field(default_factory=list)

    @classmethod
    def resumed(cls, path: Path) -> Self:
        """Read the table of a file, without rows that are wrong, failed, or of another source."""
        if not path.exists():
            return cls()
        content = json.loads(path.read_text())
        valid = (row for row in content["rows"] if is_current(row))
        return cls({Place.of(row).name: row for row in valid}, content["runs"])

    def begin(self) -> None:
        """Start a run: rows added from now on belong to it."""
        self.runs.append(provenance())

    def add(self, row: Row) -> None:
        """Add a row of this run."""
        self.rows[Place.of(row).name] = {**row, "run": len(self.runs) - 1}

    def write(self, path: Path, order: Sequence[Place]) -> None:
        """Write the whole file: rows in the order of places, then those of others."""
        places = [place.name for place in order if place.name in self.rows]
        names = dict.fromkeys([*places, *self.rows])
        rows = sorted((self.rows[name] for name in names), key=lambda row: str(row["kernel"]))
        write(path, {"mode": "events", "runs": self.runs, "summary": summary(rows), "rows": rows})


def is_current(row: Row) -> bool:
    """Say if a row was timed with the source that its kernel has now."""
    return "ours" in row and row.get("source") == source_of(str(row["kernel"]))
