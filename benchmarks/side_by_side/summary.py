"""Summary of the runs: how much less time, and the speed of the chosen configs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from asmtune.workshop.replay.results import geometric_mean

_BASELINES: Final = ("autotune", "exhaustive_5_20")


def ratios(task: dict[str, Any]) -> dict[str, float]:
    """Compute for a task the factor in wall clock against each baseline, and the relative speed.

    The speed is that of the best of all configs, by 5/20 ms, over that of the choice.
    """
    seconds = task["asmtune"]["seconds"]
    times = task["retimed_us"]
    took = _seconds(task)
    del took["asmtune"]
    return {
        **{name: value / seconds for name, value in took.items()},
        "speed": times["exhaustive"] / times["asmtune"],
        "speed_over_autotune": times["triton.autotune"] / times["asmtune"],
    }


def summary(tasks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Compute geometric means and worst cases over the finished tasks that have the baseline."""
    whole = [ratios(task) for task in tasks if "error" not in task]
    if not whole:
        return {"tasks": 0}
    result: dict[str, Any] = {"tasks": len(whole), "of": len(tasks)}
    for name in (*_BASELINES, "speed", "speed_over_autotune"):
        if values := [one[name] for one in whole if name in one]:
            means = {"geomean": geometric_mean(values), "worst": min(values)}
            result[name] = {key: round(value, 4) for key, value in means.items()}
            if len(values) < len(whole):
                result[name]["tasks"] = len(values)
    took = [_seconds(task) for task in tasks if "error" not in task]
    result["seconds"] = {
        name: round(sum(one.get(name, 0.0) for one in took), 1)
        for name in ("asmtune", *_BASELINES)
        if any(name in one for one in took)
    }
    return result


def table(tasks: Sequence[dict[str, Any]]) -> str:
    """Write a line a task, and the summary."""
    head = f"{'task':44} {'asmtune':>8} {'autotune':>9} {'5/20':>7} {'speed':>6}"
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
            f"{took['exhaustive_5_20']:6.1f}s {speed:6.3f}"
        )
    return "\n".join([*lines, str(summary(tasks))])


def _seconds(task: dict[str, Any]) -> dict[str, float]:
    """Read the seconds of asmtune and of each baseline that was run."""
    return {
        "asmtune": task["asmtune"]["seconds"],
        "autotune": task["triton.autotune"]["seconds"],
        "exhaustive_5_20": task["exhaustive"]["coarse"]["seconds"],
    }
