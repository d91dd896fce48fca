"""Programs run in processes of their own, with their own caches and a limit of time."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.packages import tunings
from benchmarks.packages.catalogue import Program, Way

_CACHES: Final = (
    "ASMTUNE_CACHE_DIR",
    "FLAGGEMS_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "XDG_CACHE_HOME",
)
_SHOWN: Final = 300


@dataclass(frozen=True)
class Place:
    """The folders in which a program runs in one way.

    Attributes:
        caches: folder of the caches that the next process reads.
        outputs: folder into which the program writes.
        limit_s: seconds after which a process is killed.
        end: time by `time.monotonic` after which no process starts or lives.
    """

    caches: Path
    outputs: Path
    limit_s: float
    end: float = math.inf

    @property
    def asmtune(self) -> Path:
        """Give the folder of asmtune among the caches."""
        return self.caches / "asmtune_cache_dir"


def run_program(program: Program, way: Way, place: Place) -> dict[str, Any]:
    """Run all operations of a program; each has times, or an error that says what happened.

    An operation that ends its process, or lasts until the limit, has that as its error. The
    operations behind it run in a process of their own.
    """
    place.outputs.mkdir(parents=True)
    known = tunings.traces(place.asmtune / "runs")
    result: dict[str, Any] = {"seconds": 0.0, "operations": {}}
    pending = list(program.operations)
    while pending:
        ended = _process(program, way, place, pending)
        result["seconds"] = round(result["seconds"] + ended.seconds, 2)
        result["operations"] |= _operations(ended, place, known)
        pending = [name for name in pending if name not in result["operations"]]
        if pending:
            error = {"error": ended.error or "ended without its result"}
            result["operations"][pending.pop(0)] = error
        known = tunings.traces(place.asmtune / "runs")
    result["predicted"] = tunings.predicted(place.asmtune / "store.sqlite")
    return result


@dataclass(frozen=True)
class _Ended:
    """A process that has ended: its wall clock, what it printed, its times, why it failed."""

    seconds: float
    output: str
    times: dict[str, Any]
    error: str | None


def _process(program: Program, way: Way, place: Place, operations: Sequence[str]) -> _Ended:
    times = place.outputs / "times.json"
    times.unlink(missing_ok=True)
    command = [sys.executable, *way.command, str(program.path), str(place.outputs)]
    command += ["--operations", ",".join(operations)]
    left = place.end - time.monotonic()
    if left <= 0:
        return _Ended(0.0, "", {}, "not started: the time of all together was over")
    start = time.perf_counter()
    with _logs(place.outputs) as (output, errors):
        process = subprocess.Popen(
            command,
            cwd=place.outputs,  # where no folder of this repository hides a package's own
            env=_environment(place),
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        error = _wait(process, min(place.limit_s, left))
    seconds = time.perf_counter() - start
    said = (place.outputs / "stderr").read_text(errors="replace").strip().splitlines()
    if error is None and process.returncode:
        error = (said[-1] if said else f"exit code {process.returncode}")[:_SHOWN]
    return _Ended(
        seconds,
        (place.outputs / "stdout").read_text(errors="replace"),
        json.loads(times.read_text()) if times.exists() else {},
        error,
    )


def _wait(process: subprocess.Popen[bytes], limit_s: float) -> str | None:
    """Wait for a process, or end it with its children at the limit; say if it was ended."""
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return f"killed after its limit of {limit_s:.4g} s"
    return None


def _operations(ended: _Ended, place: Place, known: Sequence[str]) -> dict[str, dict[str, Any]]:
    """List the operations that a process ended, with what was tuned in the first call of each."""
    done: dict[str, dict[str, Any]] = ended.times.get("operations", {})
    spans = {name: row.pop("first_at") for name, row in done.items()}
    triton = tunings.by_triton(ended.output)
    own = tunings.by_asmtune(place.asmtune / "runs", known, spans)
    for name, row in done.items():
        row["tuned_by_triton"] = triton.get(name, [])
        row["tuned_by_asmtune"] = own.get(name, [])
    return done


def _environment(place: Place) -> dict[str, str]:
    caches = {name: str(place.caches / name.lower()) for name in _CACHES}
    return {**os.environ, **caches, "TRITON_PRINT_AUTOTUNING": "1", "PYTHONUNBUFFERED": "1"}


@contextmanager
def _logs(folder: Path) -> Iterator[tuple[Any, Any]]:
    with (folder / "stdout").open("wb") as output, (folder / "stderr").open("wb") as errors:
        yield output, errors
