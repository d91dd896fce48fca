"""Summary of a program's runs: time to tune, speed, and equality of the outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch

from asmtune.studies.replay.results import geometric_mean
from benchmarks.packages.tolerances import compared, worst

_OWN: Final = ("asmtune", "asmtune_warm")


def judged(runs: Mapping[str, Any], outputs: Mapping[str, Path]) -> dict[str, dict[str, Any]]:
    """Say for each operation of a program what asmtune changed against `triton.autotune` alone.

    Args:
        runs: the result of `run_program` by name of the way; "plain" among them.
        outputs: folders into which the program wrote, by way.

    Returns:
        `equal`: whether every output of the first and of the last call under asmtune is that of
        the last call without; None where a side has none. `spread`: how far the plain program's
        own first and last call are apart. `speed`: plain time over asmtune's, on the GPU;
        `speed_of_call`: likewise with the host; `first_s`: seconds of the first call, tuning
        included; `tuning`: how many keys, configs compiled and timed, and seconds; all by way.
    """
    plain = runs["plain"]["operations"]
    return {name: _operation(name, runs, outputs) for name in plain}


def _operation(name: str, runs: Mapping[str, Any], outputs: Mapping[str, Path]) -> dict[str, Any]:
    rows = {way: ran["operations"].get(name, {}) for way, ran in runs.items()}
    result: dict[str, Any] = {
        "first_s": {way: row["first_s"] for way, row in rows.items() if "first_s" in row},
        "tuning": {way: _tuning([row]) for way, row in rows.items() if "first_s" in row},
        "errors": {way: row["error"] for way, row in rows.items() if "error" in row},
    }
    for key, times in (("speed", "gpu_us"), ("speed_of_call", "call_us")):
        result[key] = {
            way: round(rows["plain"][times] / rows[way][times], 4)
            for way in _OWN
            if times in rows["plain"] and times in rows.get(way, {})
        }
    if "error" in rows["plain"] or any("first_s" not in rows[w] for w in _OWN if w in rows):
        return {**result, "equal": None}
    expected = _saved(outputs["plain"], name)
    result["spread"] = compared(expected["last"], expected["first"])
    result["outputs"] = {}
    for way in (way for way in _OWN if way in rows):
        saved = _saved(outputs[way], name)
        calls = [compared(expected["last"], saved[call]) for call in ("first", "last")]
        result["outputs"][way] = {
            output: worst([call[output] for call in calls if output in call]) for output in calls[0]
        }
    result["equal"] = all(
        row["equal"] for way in result["outputs"].values() for row in way.values()
    )
    return result


def _tuning(operations: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Add up keys, configs and seconds of all that was tuned in the first calls of operations.

    Of Triton's own tuning, FlagGems' among it, each config is compiled and timed.
    """
    triton = [row for operation in operations for row in operation["tuned_by_triton"]]
    own = [row for operation in operations for row in operation["tuned_by_asmtune"]]
    configs = sum(row["configs"] for row in triton)
    return {
        "keys": len(triton) + len(own),
        "keys_by_triton": len(triton),
        "compiled": configs + sum(row.get("compiled", 0) for row in own),
        "timed": configs + sum(row.get("timed", 0) for row in own),
        "seconds": round(sum(row.get("seconds", 0.0) for row in (*triton, *own)), 2),
    }


def _saved(folder: Path, name: str) -> dict[str, dict[str, torch.Tensor]]:
    saved: dict[str, dict[str, torch.Tensor]]
    saved = torch.load(folder / f"{name}.pt", weights_only=True)
    return saved


def summary(programs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Sum times and average speeds of all operations with a result in each way."""
    rows = [row for program in programs for row in program["operations"].values()]
    result: dict[str, Any] = {
        "programs": len(programs),
        "operations": len(rows),
        "equal": sum(row["equal"] is True for row in rows),
        "unequal": sum(row["equal"] is False for row in rows),
        "without_result": sum(row["equal"] is None for row in rows),
        "first_s": {},
        "tuning": {},
    }
    whole = [row for row in rows if row["equal"] is not None]
    for way in sorted({way for row in whole for way in row["first_s"]}):
        timed = [row for row in whole if way in row["first_s"]]
        result["first_s"][way] = round(sum(row["first_s"][way] for row in timed), 2)
        parts = [row["tuning"][way] for row in timed]
        result["tuning"][way] = {
            name: round(sum(part[name] for part in parts), 2) for name in parts[0]
        }
    for key in ("speed", "speed_of_call"):
        for way in _OWN:
            values = [row[key][way] for row in whole if way in row[key]]
            if values:
                mean = {"geomean": round(geometric_mean(values), 4), "worst": min(values)}
                result.setdefault(key, {})[way] = mean
    return result


def table(programs: Sequence[Mapping[str, Any]]) -> str:
    """Write a line an operation: seconds of the first call by way, speed, equality."""
    ways = ("plain", "plain_again", *_OWN)
    head = "".join(f"{way:>14}" for way in ways)
    lines = [f"{'first call, seconds':34}{head}{'speed':>8}{'of call':>8}  outputs"]
    for program in programs:
        for name, row in program["operations"].items():
            cells = "".join(f"{row['first_s'].get(way, float('nan')):14.2f}" for way in ways)
            speeds = "".join(
                f"{row[key].get('asmtune', float('nan')):8.3f}"
                for key in ("speed", "speed_of_call")
            )
            said = {True: "equal", False: "DIFFER", None: f"none: {row['errors']}"}[row["equal"]]
            lines.append(f"{program['program'] + ' ' + name:34}{cells}{speeds}  {said}")
    return "\n".join([*lines, str(summary(programs))])
