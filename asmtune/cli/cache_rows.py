"""What `asmtune cache` prints: records and unfinished runs as a table, as lines, as JSON."""

from __future__ import annotations

import json
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from asmtune.base import json_checks
from asmtune.core.keys.parts import covers
from asmtune.core.records.tuned import TuneKey, TuneRecord
from asmtune.store.codec import key_digest
from asmtune.store.lookup import DIGITS_SHOWN, StoredPrediction, UnfinishedRun


def record_row(layer: str, record: TuneRecord) -> dict[str, Any]:
    """A tuned config as `ls` and `show` give it."""
    return {
        **_key(layer, record.key),
        "winner": record.winner.to_dict(),
        "median_us": record.median_us,
        "date": record.provenance.date,
        "timed": len(record.measurements),
        "failed": len(record.failures),
    }


def unfinished_row(run: UnfinishedRun) -> dict[str, Any]:
    """A run that has no winner yet, with the timings that the next one reuses."""
    return {
        **_key("unfinished", run.key),
        "winner": None,
        "median_us": None,
        "date": run.date,
        "timed": run.timed,
        "failed": run.failed,
    }


def prediction_row(prediction: StoredPrediction) -> dict[str, Any]:
    """A config that the model chose, and nobody has timed."""
    return {
        **_key("predicted", prediction.key),
        "winner": prediction.config.to_dict(),
        "median_us": None,
        "date": prediction.provenance.date,
        "timed": 0,
        "failed": 0,
    }


def _key(layer: str, key: TuneKey) -> dict[str, Any]:
    return {
        "key": key_digest(key)[:DIGITS_SHOWN],
        "layer": layer,
        "kernel": key.kernel,
        "shape": dict(key.shape),
        "covers": covered(key),
        "dtypes": dict(key.dtypes),
        "device": key.device,
    }


def covered(key: TuneKey) -> list[str]:
    """What the buckets and functions among a key's parts stand for, in words."""
    told = (covers(name, value) for name, value in key.shape.items())
    return [text for text in told if text is not None]


def print_json(value: Any) -> None:
    """JSON, for programs."""
    typer.echo(json.dumps(value, indent=1))


def print_count(verb: str, count: int, as_json: bool, rest: str) -> None:
    """How many records a command has moved."""
    if as_json:
        print_json({verb: count})
    else:
        typer.echo(f"{verb} {count} {rest}")


def print_table(rows: list[dict[str, Any]]) -> None:
    """A table on a terminal; lines with tabs, header first, in a pipe."""
    if not rows:
        return
    cells = [[cell(value) for value in row.values()] for row in rows]
    console = Console()
    if console.is_terminal:
        table = Table(*rows[0])
        for line in cells:
            table.add_row(*map(Text, line))
        console.print(table)
        return
    for line in [list(rows[0]), *cells]:
        typer.echo("\t".join(line))


def cell(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, list):
        return "; ".join(map(cell, value)) or "-"
    if isinstance(value, dict):
        return " ".join(cell(f"{name}={item}") for name, item in value.items())
    if isinstance(value, float):
        return f"{value:.3f}"
    text = "-" if value is None else str(value)
    # What a file brought in must not reach the terminal as control codes.
    return json_checks.printable(text)
