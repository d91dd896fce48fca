"""Files of recorded timings, read with care."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from asmtune.base.errors import OracleError
from asmtune.workshop.replay.oracle import Oracle, load_oracle

TIMINGS = Path(__file__).parents[2] / "replay_data" / "timings.json"


def refused(path: Path) -> str:
    """The one line with which a file is refused."""
    with pytest.raises(OracleError) as caught:
        load_oracle(path)
    message = str(caught.value)
    assert "\n" not in message
    assert message.count(f"oracle {path}") == 1
    return message


def test_reading(tmp_path: Path) -> None:
    """Zipped or not, a file gives the same tasks, rows and failures."""
    zipped = tmp_path / "timings.json.gz"
    zipped.write_bytes(gzip.compress(TIMINGS.read_bytes()))
    oracle = load_oracle(TIMINGS)
    assert load_oracle(zipped) == oracle
    assert isinstance(oracle, Oracle)
    assert [task.name for task in oracle.tasks] == [
        "barriers n=64",
        "barriers n=128",
        "returns n=128",
    ]
    row = oracle.tasks[0].rows[4]
    assert (row.ms, row.error, row.config.num_warps) == (None, "too many threads", 64)


def test_flipped_bytes(tmp_path: Path) -> None:
    """A damaged file is read or refused in one line, never anything else."""
    generator, path = random.Random(5), tmp_path / "flipped"
    for data in (TIMINGS.read_bytes(), gzip.compress(TIMINGS.read_bytes())):
        for _ in range(150):
            damaged = bytearray(data)
            for _ in range(3):
                damaged[generator.randrange(len(data))] = generator.randrange(256)
            path.write_bytes(bytes(damaged))
            message = ""
            try:
                load_oracle(path)
            except OracleError as error:
                message = str(error)
            assert "\n" not in message


def _without(*path: Any) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        *to, last = path
        for step in to:
            document = document[step]
        del document[last]

    return change


def _with(value: Any, *path: Any) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        *to, last = path
        for step in to:
            document = document[step]
        document[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_without("meta"), "no 'meta'"),
        (_with([], "tasks"), "not a list with at least one task"),
        (_with(3, "tasks", 1), "task 1: not of the oracle's form"),
        (_without("tasks", 0, "kernel"), "task 0: no field 'kernel'"),
        (_with([], "tasks", 0, "rows"), "task 0 (barriers n=64): no config was timed"),
        (_with("4", "tasks", 0, "rows", 2, "config", "num_warps"), "row 2: num_warps is '4'"),
        (_without("tasks", 0, "rows", 2, "ms"), "row 2: neither 'ms' nor 'error'"),
        (_with("fast", "tasks", 0, "rows", 2, "ms"), "row 2: ms is 'fast'"),
    ],
)
def test_wrong_fields(
    change: Callable[[Any], None],
    says: str,
    changed: Callable[[Callable[[Any], None]], Path],
) -> None:
    """A missing or wrong field is named, with its task and row."""
    assert says in refused(changed(change))
