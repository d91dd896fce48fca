"""`asmtune prune-report`: which configs are worth timing on a target, and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from asmtune.cli.arguments import KernelArguments
from asmtune.cli.output import write_result
from asmtune.errors import InputError
from asmtune.funnel import Funnel
from asmtune.records import PruneReport
from asmtune.report.documents import report_csv, report_json
from asmtune.report.progress import ProgressBar
from asmtune.report.tables import prune_table
from asmtune.score import make_scorer
from asmtune.settings import Settings
from asmtune.target import load_target

Kernel = Annotated[str, typer.Argument(help="A kernel's name, a file, or file.py:function.")]
Shape = Annotated[str | None, typer.Option(help="Sizes: M=4096,N=4096,K=4096.")]
Dtype = Annotated[str | None, typer.Option(help="One of the kernel's dtypes; default its first.")]
Targets = Annotated[
    list[str], typer.Option(help="A device's name or a JSON file; several stand side by side.")
]
Axes = Annotated[list[str], typer.Option(help="NAME=V1,V2: replaces an axis of the space.")]
Arguments = Annotated[
    list[str], typer.Option(help="NAME=VALUE, for a plain function; fp16 gives a pointer to it.")
]
ScorerName = Annotated[str, typer.Option(help="What ranks the configs: roofline, weights, chance.")]
Output = Annotated[Path | None, typer.Option(help="A file to write instead of stdout.")]


class Format(StrEnum):
    """How a report is written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def prune_report(
    kernel: Kernel,
    target: Targets = ["H200"],  # noqa: B006 - typer copies it
    shape: Shape = None,
    dtype: Dtype = None,
    axis: Axes = [],  # noqa: B006
    arg: Arguments = [],  # noqa: B006
    top: Annotated[int, typer.Option(min=1, help="How many configs to keep.")] = 20,
    scorer: ScorerName = "roofline",
    format: Annotated[Format, typer.Option(help="table, json or csv.")] = Format.TABLE,  # noqa: A002
    output: Output = None,
    check: Annotated[bool, typer.Option(help="Exit 1 if there are findings.")] = False,
) -> None:
    """Compile a kernel's configs for a target, without a GPU, and say which to keep.

    Findings, under --check: the default config cannot run; a config made the
    compiler fail for a reason that no rule names; a kept config spills.
    """
    arguments = KernelArguments(kernel, shape, dtype, tuple(axis), tuple(arg))
    reports = make_reports(arguments, target, scorer, top)
    write_result(_render(reports, format), output)
    found = [finding for report in reports for finding in findings(report)]
    if check and found:
        for finding in found:
            typer.echo(f"asmtune: {finding}", err=True)
        raise typer.Exit(1)


def make_reports(
    arguments: KernelArguments, targets: Sequence[str], scorer: str, keep: int | None
) -> list[PruneReport]:
    """One report a target, with progress on stderr."""
    machines = [load_target(name) for name in targets]
    if len({machine.name for machine in machines}) != len(machines):
        raise InputError(f"--target: a device is given twice: {', '.join(targets)}")
    ranker, settings = make_scorer(scorer), Settings.from_environment()
    problem, space = arguments.load()
    reports = []
    with ProgressBar() as progress:
        for machine in machines:
            funnel = Funnel(machine, ranker, settings, keep, progress)
            reports.append(funnel.prune(problem, space))
    return reports


def findings(report: PruneReport) -> Iterable[str]:
    """What a careful reader would want to know of, a line each."""
    named = {"registers", "shared_memory", "tensor_depth", "accumulators"}
    yield from report.notes
    for verdict in report.verdicts:
        failure = verdict.failure
        if failure is not None and failure.stage != "rules" and failure.kind not in named:
            yield f"{report.target}: {verdict.config}: {failure}"
        if verdict.kept and verdict.features and verdict.features["spill_words"]:
            words = verdict.features["spill_words"]
            yield f"{report.target}: {verdict.config}: kept, and spills {words:.0f} words a thread"


def _render(reports: Sequence[PruneReport], form: Format) -> object:
    if form is Format.JSON:
        return report_json(reports)
    return report_csv(reports).rstrip("\n") if form is Format.CSV else prune_table(reports)
