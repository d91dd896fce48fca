"""`asmtune prune-report`: which configs are worth timing on a target, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from asmtune.base.errors import CompileError, InputError
from asmtune.cli.cache import find_record
from asmtune.cli.output import check_destinations, print_line, write_result
from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.core.inputs.plain_functions import assumptions_of, plain_function, with_patterns
from asmtune.core.inputs.shapes import check_inputs, parse_assignments, parse_axis, unique
from asmtune.core.kernel_module import kernel_names, load_kernel_module
from asmtune.core.problem import Problem
from asmtune.core.records.verdicts import PruneReport
from asmtune.core.space.space import Space
from asmtune.predict.prune.flow import DEFAULT_FAILS
from asmtune.report.cells import dtype_words, words
from asmtune.report.documents import read_reports, report_csv, report_json
from asmtune.report.explorer.page import page_of, report_html
from asmtune.report.explorer.timings import measured_times, with_timings
from asmtune.report.progress import ProgressBar
from asmtune.report.tables import prune_table
from asmtune.runtime.offline.kernel_sources import LoadedKernel, load_kernel
from asmtune.runtime.offline.pruning import PruneChoices
from asmtune.runtime.offline.pruning import prune_report as run_prune_report

Subject = Annotated[
    str,
    typer.Argument(
        metavar="KERNEL|REPORT",
        help="A kernel's name, a file, or file.py:function; or a report saved as .json.",
    ),
]
Shape = Annotated[str | None, typer.Option(help="Sizes: M=4096,N=4096,K=4096.")]
Dtype = Annotated[str | None, typer.Option(help="One of the kernel's dtypes; default its first.")]
Targets = Annotated[list[str], typer.Option(help="A device's name or a JSON file; repeatable.")]
Axes = Annotated[list[str], typer.Option(help="NAME=V1,V2: replaces an axis of the space.")]
Arguments = Annotated[
    list[str],
    typer.Option(
        help="NAME=VALUE, for a plain function; fp16[M,K] gives a pointer, and for any kernel "
        "ragged(64, 2048) or another pattern the values of an index tensor."
    ),
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
    str | None,
    typer.Option(
        help="How many, by a prediction before it: all, auto, N or P%; auto where the scorer's "
        "error before compiling is known, else all."
    ),
]
Tiles = Annotated[
    bool, typer.Option("--search-held-tiles", help="Search a recurrence's held tiles as well.")
]
Caps = Annotated[
    bool, typer.Option(help="Add maxnreg where one more program fits, if the space has none.")
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="A file to write instead of stdout.")
]
TimingsOption = Annotated[
    str | None,
    typer.Option(
        "--timings",
        help="Measured times to show: a run, store, or a file of an export or of recordings.",
    ),
]


StoredOption = Annotated[
    str | None,
    typer.Option(
        metavar="KEYPREFIX",
        help="Mark a record's config, whatever its rank; `asmtune cache ls` shows its digits.",
    ),
]


@dataclass(frozen=True)
class KernelArguments:
    """A kernel as the command line names it.

    Attributes:
        kernel: a shipped kernel's name, a file, or `file.py:function`.
        shape: "M=4096,N=4096,K=4096"; None, like `dtype`, for the module's first.
        axes: "NAME=v1,v2" each; they replace the space's own.
        values: "name=value" each, of a plain function; "name=pattern" of index tensors.
        grid: "cdiv(n, BLOCK)", of a plain function.
    """

    kernel: str
    shape: str | None = None
    dtype: str | None = None
    axes: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    grid: str | None = None

    def load(self) -> LoadedKernel:
        """Make the problem, on meta tensors, and its space, with the module that they come from.

        Raises:
            InputError: an argument is malformed or does not fit the kernel.
        """
        axes = unique("--axis", map(parse_axis, self.axes))
        Space(axes)  # refuses malformed values before the kernel's file is imported
        if ":" in self.kernel:
            if self.shape is not None or self.dtype is not None:
                raise InputError(
                    "--shape and --dtype are for kernel modules; give a function --arg"
                )
            return LoadedKernel(*plain_function(self.kernel, self.values, self.grid, axes))
        if self.grid is not None:
            raise InputError("--grid is for a plain function, named as file.py:function")
        check_inputs((), self.dtype)
        shape = None if self.shape is None else parse_assignments(self.shape, "--shape")
        module = load_kernel_module(self.kernel)
        loaded = load_kernel(module, shape=shape, dtype=self.dtype, axes=axes)
        return replace(loaded, problem=with_patterns(loaded.problem, self.values))

    def assumptions(self, problem: Problem) -> tuple[str, ...]:
        """List what a report of a plain function assumes, a sentence each."""
        return assumptions_of(problem) if ":" in self.kernel else ()


class ReportFormat(StrEnum):
    """Forms of a report."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    HTML = "html"


FormatOption = Annotated[ReportFormat, typer.Option(help="table, json, csv or html.")]


def prune_report(
    context: typer.Context,
    kernel: Subject = "",
    target: Targets = ["H200"],  # noqa: B006 - typer copies it
    shape: Shape = None,
    dtype: Dtype = None,
    axis: Axes = [],  # noqa: B006
    arg: Arguments = [],  # noqa: B006
    grid: Grid = None,
    keep: KeepOption = None,
    compile: CompileOption = None,  # noqa: A002
    scorer: ScorerName = "roofline",
    tiles: Tiles = False,
    caps: Caps = True,
    format: FormatOption = ReportFormat.TABLE,  # noqa: A002
    output: Output = None,
    timings: TimingsOption = None,
    stored: StoredOption = None,
    check: Annotated[bool, typer.Option(help="Exit 1 if there are findings.")] = False,
) -> None:
    """Rank a kernel's configs for a target, without a GPU, and say which to keep.

    All are sketched (as far as LLVM, a tenth of a compile), of a large space those that rank
    best by the arithmetic of their tiles. Those that rank best then are compiled and ranked
    again by their assembly; --compile all compiles all of them.

    html is one page to look through them, with their code; it opens from disk. A report that
    was saved as JSON is shown again in any format, without code.

    Findings, under --check: the default config cannot run; a config made the
    compiler fail for a reason that no rule names; a kept config spills. What was only
    ranked or sketched never met LLVM or ptxas: --compile all looks for failures there as well.

    Without a kernel, the names of those that come with asmtune are printed. If no config can run on
    one of the targets, stderr says so, the others are reported, and the exit status is 1.
    """
    if not kernel:
        names = ", ".join(kernel_names())
        raise InputError(f"Missing argument 'KERNEL': a file, file.py:function, or one of {names}")
    check_destinations([("--output", output)] if output else [])
    is_page, failed = format is ReportFormat.HTML, False
    if kernel.endswith(".json"):
        allowed = ("kernel", "format", "output", "timings", "check")
        _refuse_options(context, allowed, kernel)
        reports = read_reports(Path(kernel))
        reports = with_timings(reports, measured_times(timings, reports, ()))
        result = report_html(reports) if is_page else _render(reports, format)
    else:
        _check_targets(target)
        PruneChoices.of(scorer, keep, compile)  # refused before the kernel's file is imported
        arguments = KernelArguments(kernel, shape, dtype, tuple(axis), tuple(arg), grid)
        loaded = arguments.load()
        measured = measured_times(timings, loaded, target)
        choices: dict[str, Any] = {"scorer": scorer, "keep": keep, "compile": compile}
        choices |= {"caps": caps, "search_held_tiles": tiles}
        config, notes = _stored(stored, loaded) if stored is not None else (None, ())
        made = make_reports(loaded, target, {**choices, "stored": config})
        notes = (*notes, *arguments.assumptions(loaded.problem))
        reports = [replace(one, notes=(*one.notes, *notes)) for one in made.values()]
        reports = with_timings(reports, measured)
        page = page_of(reports, loaded.problem, [*made]) if is_page else None
        result = _render(reports, format) if page is None else page
        failed = len(made) < len(target)
    write_result(result, output)
    problems = [finding for report in reports for finding in findings(report)] if check else []
    for finding in problems:
        print_line(f"asmtune: {finding}", err=True)
    if problems or failed:
        raise typer.Exit(1)


def _refuse_options(context: typer.Context, allowed: Sequence[str], report: str) -> None:
    """Refuse options that say how to judge a kernel, for a report that was saved.

    Raises:
        InputError: an option was given that is not allowed.
    """
    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE" and name not in allowed:
            raise InputError(f"--{name} is for kernels, and {report} is a report")


def _check_targets(targets: Sequence[str]) -> None:
    devices = [load_target(name).name for name in targets]
    if len(set(devices)) != len(devices):
        raise InputError(f"--target: a device is given twice: {', '.join(targets)}")


def make_reports(
    loaded: LoadedKernel, targets: Sequence[str], choices: Mapping[str, Any]
) -> dict[str, PruneReport]:
    """Make a report for each target, with progress on stderr; say there which have none.

    Raises:
        CompileError: no config can run on any of them.
    """
    made: dict[str, PruneReport] = {}
    failed: list[CompileError] = []
    with ProgressBar() as progress:
        for name in targets:
            try:
                made[name] = run_prune_report(
                    loaded.problem, loaded.space, target=name, progress=progress, **choices
                )
            except CompileError as error:
                failed.append(error)
    if not made:
        raise failed[0]
    for one in failed:
        print_line(f"asmtune: {one}", err=True)
    return made


def _stored(prefix: str, loaded: LoadedKernel) -> tuple[Config, tuple[str, ...]]:
    """Find a record's config in the space, and note what the record is of.

    Raises:
        InputError: there is no such record, it is of another kernel, or the space lacks its config.
    """
    layer, record = find_record(prefix, None)
    key, problem, space = record.key, loaded.problem, loaded.space
    if problem.full_name != key.kernel and problem.name not in key.kernel.split("."):
        raise InputError(
            f"--stored {prefix}: it is a record of {key.kernel}, and the report is of "
            f"{problem.full_name}; `asmtune cache ls` lists each record's kernel"
        )
    launch = f"{key.device}, {words(key.shape)} {dtype_words(key.dtypes)}"
    config = space.matching(record.winner, **problem.shape)
    if config is None:
        why = space.lacks(record.winner.with_cap(None), **problem.shape) or "none equals it"
        raise InputError(
            f"--stored {prefix}: {record.winner} is not in the space: {why}; "
            f"the record is of {launch}"
        )
    return config, (f"stored: config of the record {prefix} ({layer}) of {launch}",)


def findings(report: PruneReport) -> Iterable[str]:
    """List problems that a careful reader would want to know of, a line each."""
    named = {"registers", "shared_memory", "tensor_depth", "accumulators"}
    yield from (note for note in report.notes if note.startswith(DEFAULT_FAILS))
    for verdict in report.verdicts:
        failure = verdict.failure
        if failure is not None and failure.stage != "rules" and failure.kind not in named:
            yield f"{report.target}: {verdict.config}: {failure}"
        if verdict.kept and verdict.features and verdict.features.get("spill_words"):
            words = verdict.features["spill_words"]
            yield f"{report.target}: {verdict.config}: kept, and spills {words:.0f} words a thread"


def _render(reports: Sequence[PruneReport], form: ReportFormat) -> object:
    if form is ReportFormat.JSON:
        return report_json(reports)
    return report_csv(reports).rstrip("\n") if form is ReportFormat.CSV else prune_table(reports)
