"""Summary of the runs: how much less time, and the speed of the chosen configs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asmtune.studies.replay.results import geometric_mean


def ratios(task: dict[str, Any]) -> dict[str, float]:
    """Compute for a task the factor in wall clock against each baseline, and the relative speed."""
    seconds = task["asmtune"]["seconds"]
    times = task["retimed_us"]
    return {
        "autotune": task["triton.autotune"]["seconds"] / seconds,
        "exhaustive_25_100": task["exhaustive"]["fine"]["seconds"] / seconds,
        "exhaustive_5_20": task["exhaustive"]["coarse"]["seconds"] / seconds,
        "speed": times["exhaustive"] / times["asmtune"],
        "speed_over_autotune": times["triton.autotune"] / times["asmtune"],
    }


def summary(tasks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Compute geometric means and worst cases over the finished tasks."""
    whole = [ratios(task) for task in tasks if "error" not in task]
    if not whole:
        return {"tasks": 0}
    result: dict[str, Any] = {"tasks": len(whole), "of": len(tasks)}
    for name in whole[0]:
        values = [one[name] for one in whole]
        result[name] = {"geomean": round(geometric_mean(values), 4), "worst": round(min(values), 4)}
    result["seconds"] = {
        name: round(sum(_seconds(task)[name] for task in tasks if "error" not in task), 1)
        for name in ("asmtune", "autotune", "exhaustive_25_100", "exhaustive_5_20")
    }
    return result


def table(tasks: Sequence[dict[str, Any]]) -> str:
    """Write a line a task, and the summary."""
    head = f"{'task':44} {'asmtune':>8} {'autotune':>9} {'25/100':>7} {'5/20':>7} {'speed':>6}"
    lines = [head]
    for task in tasks:
        sizes = ",".join(str(value) for value in task["shape"].values())
        name = f"{task['kernel']} {sizes}"
        if "error" in task:
            lines.append(f"{name:44} {task['error']}")
            continue
        took, speed = _seconds(task), ratios(task)["speed"]
        lines.append(
            f"{name:44} {took['asmtune']:7.1f}s {took['autotune']:8.1f}s "
            f"{took['exhaustive_25_100']:6.1f}s {took['exhaustive_5_20']:6.1f}s {speed:6.3f}"
        )
    return "\n".join([*lines, str(summary(tasks))])


def _seconds(task: dict[str, Any]) -> dict[str, float]:
    return {
        "asmtune": task["asmtune"]["seconds"],
        "autotune": task["triton.autotune"]["seconds"],
        "exhaustive_25_100": task["exhaustive"]["fine"]["seconds"],
        "exhaustive_5_20": task["exhaustive"]["coarse"]["seconds"],
    }
