"""Replays as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.text import Text

from asmtune.report.cells import ReportTable, plain_table
from asmtune.workshop.replay.results import CUTS, ReplayReport, ScorerResult


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
