"""`asmtune prune-report`: which configs are worth timing on a target, and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from asmtune.cli.arguments import KernelArguments
from asmtune.cli.output import write_result
from asmtune.errors import InputError
from asmtune.funnel import DEFAULT_FAILS, Funnel, check_compile
from asmtune.records import PruneReport
from asmtune.report.documents import report_csv, report_json
from asmtune.report.progress import ProgressBar
from asmtune.report.tables import prune_table
from asmtune.score import make_scorer
from asmtune.score.keep import Keep
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
    list[str], typer.Option(help="NAME=VALUE, for a plain function; fp16[M,K] gives a pointer.")
]
Grid = Annotated[
    str | None, typer.Option(help='Programs of a plain function: "cdiv(n, BLOCK), batch".')
]
ScorerName = Annotated[str, typer.Option(help="What ranks: learned, roofline, weights or chance.")]
KeepOption = Annotated[
    str | None,
    typer.Option(help="How many: auto, N or P%; auto where the scorer's error is known, else 20."),
]
CompileOption = Annotated[
    str, typer.Option(help="How many, by a prediction before it: all, auto, N or P%.")
]
Tiles = Annotated[bool, typer.Option("--tiles", help="Search a persistent kernel's tiles as well.")]
Caps = Annotated[
    bool, typer.Option(help="Add maxnreg where one more program fits, if the space has none.")
]
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
    grid: Grid = None,
    keep: KeepOption = None,
    compile: CompileOption = "all",  # noqa: A002
    scorer: ScorerName = "roofline",
    tiles: Tiles = False,
    caps: Caps = True,
    format: Annotated[Format, typer.Option(help="table, json or csv.")] = Format.TABLE,  # noqa: A002
    output: Output = None,
    check: Annotated[bool, typer.Option(help="Exit 1 if there are findings.")] = False,
) -> None:
    """Compile a kernel's configs for a target, without a GPU, and say which to keep.

    Findings, under --check: the default config cannot run; a config made the
    compiler fail for a reason that no rule names; a kept config spills.
    """
    arguments = KernelArguments(kernel, shape, dtype, tuple(axis), tuple(arg), grid)
    how = How(scorer, keep, compile, caps=caps, tiles=tiles)
    reports = make_reports(arguments, target, how)
    assumed = arguments.assumptions()
    noted = [replace(report, notes=(*report.notes, *assumed)) for report in reports]
    write_result(_render(noted, format), output)
    found = [finding for report in reports for finding in findings(report)]
    if check and found:
        for finding in found:
            typer.echo(f"asmtune: {finding}", err=True)
        raise typer.Exit(1)


@dataclass(frozen=True)
class How:
    """The options of the same names, as they were given."""

    scorer: str
    keep: str | None
    compile: str
    caps: bool
    tiles: bool


def make_reports(arguments: KernelArguments, targets: Sequence[str], how: How) -> list[PruneReport]:
    """One report a target, with progress on stderr."""
    machines = [load_target(name) for name in targets]
    if len({machine.name for machine in machines}) != len(machines):
        raise InputError(f"--target: a device is given twice: {', '.join(targets)}")
    ranker, settings = make_scorer(how.scorer), Settings.from_environment()
    kept = Keep.default(how.scorer) if how.keep is None else Keep.of(how.keep)
    kept.check(how.scorer)
    compiled = None if how.compile == "all" else Keep.of(how.compile, "compile")
    if compiled is not None:
        check_compile(compiled, ranker)
    problem, space = arguments.load()
    reports = []
    with ProgressBar() as progress:
        for machine in machines:
            funnel = Funnel(
                machine,
                ranker,
                settings,
                kept,
                progress,
                caps=how.caps,
                tiles=how.tiles,
                compile=compiled,
            )
            reports.append(funnel.prune(problem, space))
    return reports


def findings(report: PruneReport) -> Iterable[str]:
    """What a careful reader would want to know of, a line each."""
    named = {"registers", "shared_memory", "tensor_depth", "accumulators"}
    yield from (note for note in report.notes if note.startswith(DEFAULT_FAILS))
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
