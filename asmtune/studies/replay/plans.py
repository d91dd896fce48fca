"""Ways to search recorded tasks, and what each kept for what it spent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from asmtune.core.oracle import Task
from asmtune.studies.replay.results import geometric_mean
from asmtune.tuning.search.base import BatchSizes, Limits

BUDGETS: Final = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""Compiles, or timings, that a curve is read off at."""


@dataclass(frozen=True)
class ReplayPlan:
    """A way to search.

    Attributes:
        name: of it, in the report.
        strategy: its name, as `make_strategy` has it.
        pace, limits: of the search.
        seeds: how often it is run, with as many seeds of its draws and of the noise.
    """

    name: str
    strategy: str = "model"
    pace: BatchSizes = field(default_factory=BatchSizes)
    limits: Limits = field(default_factory=Limits)
    seeds: int = 1


@dataclass(frozen=True)
class SearchPoint:
    """How far a search was after a trial.

    Attributes:
        compiles, timings: spent by then.
        kept: share of the best speed that its finalists would keep, in [0, 1]; 0 for none.
    """

    compiles: int
    timings: int
    kept: float


@dataclass(frozen=True)
class Replayed:
    """One search of one task.

    Attributes:
        task: the task.
        marks: after each trial; the last is the outcome.
        reason: why it ended.
    """

    task: Task
    marks: tuple[SearchPoint, ...]
    reason: str

    def within(self, spent: str, budget: int) -> float | None:
        """What was kept within so many "compiles" or "timings"; None before the first trial."""
        reached = [mark.kept for mark in self.marks if getattr(mark, spent) <= budget]
        return reached[-1] if reached else None


@dataclass(frozen=True)
class PlanResult:
    """One plan on all tasks, with each seed."""

    plan: ReplayPlan
    searches: tuple[Replayed, ...]

    def summary(self, kernel: str | None = None) -> dict[str, float]:
        """Mean compiles and timings; geometric mean and worst of what was kept in the end."""
        last = [s.marks[-1] for s in self.searches if kernel in (None, s.task.kernel)]
        return {
            "compiles": round(sum(mark.compiles for mark in last) / len(last), 1),
            "timings": round(sum(mark.timings for mark in last) / len(last), 1),
            **_kept(mark.kept for mark in last),
        }

    def curve(self, spent: str) -> dict[int, dict[str, float]]:
        """Likewise what was kept within each budget that gave every task a trial."""
        points = {}
        for budget in BUDGETS:
            kept = [search.within(spent, budget) for search in self.searches]
            if None not in kept:
                points[budget] = _kept(share for share in kept if share is not None)
        return points

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON values."""
        kernels = dict.fromkeys(search.task.kernel for search in self.searches)
        tasks: dict[str, list[Replayed]] = {}
        for search in self.searches:
            tasks.setdefault(search.task.name, []).append(search)
        return {
            "strategy": self.plan.strategy,
            "seeds": self.plan.seeds,
            "all": self.summary(),
            "kernels": {kernel: self.summary(kernel) for kernel in kernels},
            "by_compiles": self.curve("compiles"),
            "by_timings": self.curve("timings"),
            "tasks": [_task(searches) for searches in tasks.values()],
        }


def _kept(shares: Iterable[float]) -> dict[str, float]:
    """Geometric mean and worst of shares kept; both 0 where nothing was."""
    shares = list(shares)
    worst = min(shares)
    mean = geometric_mean(shares) if worst else 0.0
    return {"kept": round(mean, 4), "worst": round(worst, 4)}


def _task(searches: Sequence[Replayed]) -> dict[str, Any]:
    """One task's searches, a seed each: means of what was spent, and the least that was kept."""
    last = [search.marks[-1] for search in searches]
    return {
        "task": searches[0].task.name,
        "compiles": round(sum(mark.compiles for mark in last) / len(last), 1),
        "timings": round(sum(mark.timings for mark in last) / len(last), 1),
        "worst": round(min(mark.kept for mark in last), 4),
        "ended": searches[0].reason,
    }
