"""Results of a replay: shares of the best speed kept, agreement with the recordings, tables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from rich.console import Group
from rich.text import Text

from asmtune.core.records.verdicts import Verdict
from asmtune.report.cells import ReportTable, plain_table
from asmtune.workshop.replay.oracle import Row, Task

CUTS: Final = ("top1", "top5", "top10", "top5pct", "top10pct")
"""Cuts of a ranking by name; p percent of n are max(1, n p // 100)."""


@dataclass(frozen=True)
class TaskResult:
    """The share of the best speed that a scorer kept of a task, in (0, 1], by cut."""

    task: Task
    kept: Mapping[str, float]


@dataclass(frozen=True)
class ScorerResult:
    """Results of a scorer on all tasks."""

    scorer: str
    tasks: tuple[TaskResult, ...]

    def summary(self, kernel: str | None = None) -> dict[str, float]:
        """Compute geometric means by cut, and the worst task at top 10, of a kernel or of all."""
        tasks = [r for r in self.tasks if kernel is None or r.task.kernel == kernel]
        means = {cut: geometric_mean(r.kept[cut] for r in tasks) for cut in CUTS}
        return {**means, "worst_top10": min(r.kept["top10"] for r in tasks)}

    @property
    def kernels(self) -> tuple[str, ...]:
        """List the kernels in the file's order."""
        return tuple(dict.fromkeys(r.task.kernel for r in self.tasks))


@dataclass(frozen=True)
class Agreement:
    """Predictions made without a GPU, compared with recordings made on one.

    Attributes:
        failures: configs by (told, recorded), each "runs" or "fails".
        resources: configs by (name, "equal" or "differs"), of "regs", "spills", "shared".
    """

    failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    resources: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, row: Row, verdict: Verdict) -> None:
        """Count one config."""
        predicted = "runs" if verdict.kept else "fails"
        self.failures[predicted, "runs" if row.error is None else "fails"] += 1
        names = {"regs": "regs_per_thread", "spills": "spill_words", "shared": "shared_bytes"}
        if verdict.features is not None:
            for name, recorded in row.resources.items():
                same = verdict.features[names[name]] == recorded
                self.resources[name, "equal" if same else "differs"] += 1


@dataclass(frozen=True)
class ReplayReport:
    """Outcome of a replay: each scorer's regret, and the agreement of what needs no scorer."""

    device: str
    target: str
    scorers: tuple[ScorerResult, ...]
    agreement: Agreement

    @classmethod
    def merged(cls, reports: Sequence[ReplayReport]) -> ReplayReport:
        """Merge reports of the same scorers on the same device; at least one."""
        first, agreement = reports[0], Agreement()
        tasks: dict[str, list[TaskResult]] = {}
        for report in reports:
            agreement.failures.update(report.agreement.failures)
            agreement.resources.update(report.agreement.resources)
            for result in report.scorers:
                tasks.setdefault(result.scorer, []).extend(result.tasks)
        scorers = tuple(ScorerResult(name, tuple(of)) for name, of in tasks.items())
        return replace(first, scorers=scorers, agreement=agreement)

    def to_json(self) -> dict[str, object]:
        """Write `{"scorers": {NAME: {"all": {...}, "kernels": {KERNEL: {...}}}}, ...}`."""
        failures = self.agreement.failures
        return {
            "scorers": {
                result.scorer: {
                    "all": _rounded(result.summary()),
                    "kernels": {k: _rounded(result.summary(k)) for k in result.kernels},
                }
                for result in self.scorers
            },
            "failures": {f"told {a}, recorded {b}": n for (a, b), n in sorted(failures.items())},
            "resources": {f"{a} {b}": n for (a, b), n in sorted(self.agreement.resources.items())},
            "device": self.device,
            "target": self.target,
        }


def kept_of(
    times: Sequence[float], scores: Sequence[float], among: Collection[int] | None = None
) -> dict[str, float]:
    """Compute the share of the best speed that each cut of a ranking keeps.

    Args:
        times: the time of each config.
        scores: higher is better.
        among: positions of those that may be timed; None for all. Cuts and the best speed are
            of all.
    """
    best = min(times)
    # sorted() is stable: ties keep the file's order.
    order = sorted(range(len(times)), key=lambda i: -scores[i])
    order = [i for i in order if among is None or i in among]
    cuts = cut_sizes(len(times))
    return {cut: best / min(times[i] for i in order[:count]) for cut, count in cuts.items()}


def cut_sizes(timed: int) -> dict[str, int]:
    """Count the configs that each cut keeps of `timed`."""
    sizes = (1, 5, 10, max(1, timed * 5 // 100), max(1, timed * 10 // 100))
    return dict(zip(CUTS, sizes, strict=True))


def geometric_mean(values: Iterable[float]) -> float:
    """Compute the geometric mean of positive numbers."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}


def replay_table(report: ReplayReport) -> Group:
    """Tabulate the share of the best speed kept, then agreement with the recordings."""
    failures = report.agreement.failures
    lines = [f"told {a}, recorded {b}: {n}" for (a, b), n in sorted(failures.items())]
    resources = [f"{a} {b}: {n}" for (a, b), n in sorted(report.agreement.resources.items())]
    table = scorers_table(report.scorers, report.device)
    return Group(table, Text("; ".join(lines)), Text("; ".join(resources)))


def scorers_table(scorers: Sequence[ScorerResult], device: str) -> ReportTable:
    """Tabulate the share of the best speed kept, by scorer and by kernel."""
    title = f"Share of the best speed kept on {device}, geometric means"
    headings = ("scorer", "kernel", "tasks", "top 1", "5", "10", "5%", "10%", "worst, 10")
    table = plain_table(title, headings, left=2, spare=("10%", "5%", "5"))
    for result in scorers:
        # Without a task there is no mean.
        for kernel in (None, *result.kernels) if result.tasks else ():
            summary = result.summary(kernel)
            tasks = sum(kernel in (None, r.task.kernel) for r in result.tasks)
            numbers = [f"{summary[cut]:.3f}" for cut in (*CUTS, "worst_top10")]
            name = result.scorer if kernel is None else ""
            table.add_row(name, kernel or "all", str(tasks), *numbers)
        table.add_section()
    return table
