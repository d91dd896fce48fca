"""Summary of a program's runs: time to tune, speed, and equality of the outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch

from asmtune.workshop.replay.results import geometric_mean
from benchmarks.harness import table
from benchmarks.packages.rounds import TIMES, middle, speeds
from benchmarks.packages.tolerances import compared, worst

_OWN: Final = ("asmtune", "asmtune_warm")


def judged(runs: Mapping[str, Any], outputs: Mapping[str, Path]) -> dict[str, dict[str, Any]]:
    """Say for each operation of a program what asmtune changed against `triton.autotune` alone.

    Args:
        runs: the result of `run_ways`; "plain" among them.
        outputs: folders into which the program wrote, by way.

    Returns:
        `equal`: whether every output of the first and of the last call under asmtune is that of
        the last call without, and `verdict`, "equal" or "differ"; both None where a side has
        none. `spread`: how far the plain program's own first and last call are apart. `speed`:
        plain time over asmtune's on the GPU, median of the rounds; `speed_of_call`: the same with
        the host. `first_s`: seconds of the first call, tuning included; all by way.
    """
    plain = runs["plain"]["operations"]
    return {name: _operation(name, runs, outputs) for name in plain}


def _operation(name: str, runs: Mapping[str, Any], outputs: Mapping[str, Path]) -> dict[str, Any]:
    rows = {way: ran["operations"].get(name, {}) for way, ran in runs.items()}
    result: dict[str, Any] = {
        "first_s": {way: row["first_s"] for way, row in rows.items() if "first_s" in row},
        "errors": {
            way: row[key]
            for way, row in rows.items()
            for key in ("later_error", "error")
            if key in row
        },
        **_speeds(rows),
    }
    own = [way for way in _OWN if way in rows]
    whole = "error" not in rows["plain"] and all("first_s" in rows[way] for way in own)
    if not whole or not all(_file(outputs[way], name).exists() for way in ("plain", *own)):
        return {**result, "equal": None, "verdict": None}
    calls = {way: _saved(_file(outputs[way], name)) for way in ("plain", *own)}
    return {**result, **_compared(calls)}


def _speeds(rows: Mapping[str, Any]) -> dict[str, Any]:
    """Give an operation's speeds by way, from the rounds in its rows."""
    result: dict[str, Any] = {key: {} for key in TIMES}
    for way, row in rows.items():
        for key, ratios in speeds(row).items():
            result[key][way] = middle(ratios)
    return result


def _compared(calls: Mapping[str, Any]) -> dict[str, Any]:
    """Compare the saved outputs of each way with the plain program's."""
    expected = calls["plain"]
    result: dict[str, Any] = {"spread": compared(expected["last"], expected["first"])}
    result["outputs"] = {}
    for way in (way for way in calls if way != "plain"):
        pairs = [compared(expected["last"], calls[way][call]) for call in ("first", "last")]
        result["outputs"][way] = {
            output: worst([pair[output] for pair in pairs if output in pair]) for output in pairs[0]
        }
    rows = (row for outputs in result["outputs"].values() for row in outputs.values())
    result["equal"] = all(row["equal"] for row in rows)
    result["verdict"] = "equal" if result["equal"] else "differ"
    return result


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name}.pt"


def _saved(file: Path) -> dict[str, Any]:
    saved: dict[str, Any] = torch.load(file, weights_only=True)
    return saved


def summary(programs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Sum times and average speeds of all operations with a result in each way."""
    rows = [row for program in programs for row in program["operations"].values()]
    verdicts = Counter(row["verdict"] for row in rows)
    result: dict[str, Any] = {
        "programs": len(programs),
        "operations": len(rows),
        "equal": verdicts["equal"],
        "unequal": verdicts["differ"],
        "without_result": verdicts[None],
        "first_s": {},
    }
    whole = [row for row in rows if row["equal"] is not None]
    for way in sorted({way for row in whole for way in row["first_s"]}):
        timed = [row for row in whole if way in row["first_s"]]
        result["first_s"][way] = round(sum(row["first_s"][way] for row in timed), 2)
    for key in TIMES:
        for way in _OWN:
            values = [row[key][way] for row in whole if way in row[key]]
            if values:
                mean = {"geomean": round(geometric_mean(values), 4), "worst": min(values)}
                result.setdefault(key, {})[way] = mean
    return result


OPERATIONS: Final = {
    "gla": "gla forward",
    "gated_delta_rule": "gated delta rule forward",
    "dyt": "DyT forward and backward",
    "mlp": "SwiGLU MLP",
    "moe": "mixture of experts",
    "layer_norm": "layer norm forward and backward",
    "cross_entropy": "cross entropy forward and backward",
    "bmm": "bmm (its own tuner, left alone)",
    "token": "1 token",
    "batch": "16 tokens",
    "prompt": "2048 tokens",
    "scan": "scan by chunks, forward and backward",
    "gated_norm": "gated RMS norm, forward and backward",
    "cut_cross_entropy": "loss without logits, forward and backward",
    "tensorwise": "cast to FP8, one scale",
    "experts": "cast of experts to FP8, a scale a row",
}


def document(programs: Sequence[Mapping[str, Any]]) -> str:
    """Tabulate each operation: seconds of the first call by way, GPU speed, what outputs are."""
    lines = []
    for program in programs:
        origin = program["provenance"]
        measured = f"{origin['date']:.10}, {origin['commit']}"
        for name, row in program["operations"].items():
            label = f"{program['package'].split()[0]}, {OPERATIONS.get(name, name)}"
            first = (
                f"{row['first_s'][way]:.{digits}f} s" if way in row["first_s"] else "-"
                for way, digits in (("plain", 1), ("asmtune", 1), ("asmtune_warm", 2))
            )
            speed = row["speed"].get("asmtune")
            said = row["verdict"] or f"none: {row['errors']}"
            lines.append([label, *first, f"{speed:.3f}" if speed else "-", said, measured])
    heads = ("package, operation", "`triton.autotune`", "asmtune", "the next process")
    return table((*heads, "GPU speed", "outputs", "measured, commit"), lines)
