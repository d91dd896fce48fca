"""Seconds that tasks will take, from an earlier file of results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from benchmarks.side_by_side.baselines import Effort

OTHER_S: Final = 15.0
"""A task's start, the load of its compiled configs, and the last race of the choices."""


def estimated(
    task: Mapping[str, Any], recorded: Sequence[Mapping[str, Any]], effort: Effort
) -> float | None:
    """Add up what a task took before, at this effort; None for a task that no file has.

    Args:
        task: its kernel and shape.
        recorded: tasks of an earlier file.
        effort: how much of each baseline is run.
    """
    for row in recorded:
        same = all(row[key] == task[key] for key in ("kernel", "shape"))
        if same and "retimed_us" in row:
            return round(_seconds(row, effort), 1)
    return None


def _seconds(row: Mapping[str, Any], effort: Effort) -> float:
    by_triton, everything = row["triton.autotune"]["seconds"], row["exhaustive"]
    run = by_triton if by_triton <= effort.most_s else by_triton / effort.parts
    coarse = everything["coarse"]["seconds"]
    timing = everything["coarse"]["timing_s"] * 4.5  # what 25/100 ms take, where none were run
    fine = everything.get("fine", {}).get("timing_s", timing) if effort.fine else 0.0
    return float(row["asmtune"]["seconds"] + run + coarse + fine + OTHER_S)


def plan_table(estimates: Mapping[str, float | None], gpus: int, seconds: float) -> str:
    """Write a line a task with its estimate, and the sum against the limit of the run."""
    known = [value for value in estimates.values() if value is not None]
    lines = [
        f"{name:60} " + (f"{value:6.0f} s" if value is not None else "unknown")
        for name, value in estimates.items()
    ]
    lines.append(
        f"about {sum(known) / gpus:.0f} s for {len(known)} of {len(estimates)} tasks on {gpus} "
        f"GPU{'s' * (gpus > 1)}; this run ends after {seconds:.0f} s"
    )
    return "\n".join(lines)
