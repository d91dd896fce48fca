"""`asmtune prune-report`: which configs are worth timing on a target, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Group

from asmtune.base.errors import CompileError, InputError
from asmtune.cli.cache import find_record
from asmtune.cli.kernel_arguments import (
    Arguments,
    Axes,
    Dtype,
    Grid,
    KernelArguments,
    Only,
    Shape,
    SpaceOption,
)
from asmtune.cli.output import Output, print_line, write_result
from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.core.kernel_module import kernel_names
from asmtune.core.records.verdicts import PruneReport
from asmtune.report.cells import dtype_words, words
from asmtune.report.documents import python_file, report_csv, report_json, triton_configs
from asmtune.report.progress import ProgressBar
from asmtune.runtime.offline.kernel_sources import LoadedKernel
from asmtune.runtime.offline.pruning import PruneChoices
from asmtune.runtime.offline.pruning import prune_report as run_prune_report

Subject = Annotated[
    str,
    typer.Argument(
        help="A kernel's name, a file, or file.py:function, a kernel or what launches some."
    ),
]
Targets = Annotated[list[str], typer.Option(help="A device's name or a JSON file; repeatable.")]
ScorerName = Annotated[
    str,
    typer.Option(
        help="What ranks: learned[:FILE.npz], roofline, weights[:FILE.json], chance or another."
    ),
]
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
StoredOption = Annotated[
    str | None,
    typer.Option(
        metavar="KEYPREFIX",
        help="Mark a record's config, whatever its rank; `asmtune cache ls` shows its digits.",
    ),
]


class ReportFormat(StrEnum):
    """Forms of a report."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"
    HTML = "html"
    TRITON = "triton-configs"
    PYTHON = "python"


FormatOption = Annotated[
    ReportFormat,
    typer.Option(help="text, json, csv, html, triton-configs or python (a file of them)."),
]


def prune_report(
    kernel: Subject = "",
    target: Targets = ["H200"],  # noqa: B006 - typer copies it
    shape: Shape = None,
    dtype: Dtype = None,
    axis: Axes = [],  # noqa: B006
    arg: Arguments = [],  # noqa: B006
    grid: Grid = None,
    only: Only = None,
    space: SpaceOption = None,
    keep: KeepOption = None,
    compile: CompileOption = None,  # noqa: A002
    scorer: ScorerName = "roofline",
    format: FormatOption = ReportFormat.TEXT,  # noqa: A002
    output: Output = None,
    stored: StoredOption = None,
    check: Annotated[bool, typer.Option(help="Exit 1 if there are findings.")] = False,
) -> None:
    """Rank a kernel's configs for a target, without a GPU, and say which to keep.

    All are sketched (as far as LLVM, a tenth of a compile), of a large space a part, which
    ranks the others. Those that rank best then are compiled and ranked again by their
    assembly; --compile all compiles all of them.

    html is one page to look through them; it opens from disk. triton-configs is the kept configs
    as triton.autotune takes them.

    Findings, under --check: the default config cannot run; a config made the
    compiler fail for a reason that no rule names; a kept config spills. What was only ranked or
    sketched never met LLVM or ptxas: --compile all looks for failures there as well.

    Without a kernel, the names of those that come with asmtune are printed. If no config can run on
    one of the targets, stderr says so, the others are reported, and the exit status is 1.
    """
    if not kernel:
        names = ", ".join(kernel_names())
        raise InputError(f"Missing argument 'KERNEL': a file, file.py:function, or one of {names}")
    _check_targets(target)
    PruneChoices.of(scorer, keep, compile)  # refused before the kernel's file is imported
    arguments = KernelArguments(kernel, shape, dtype, tuple(axis), tuple(arg), grid, only, space)
    choices: dict[str, Any] = {"scorer": scorer, "keep": keep, "compile": compile}
    made, failed = _made(_grouped(arguments, target), choices, stored)
    write_result(_rendered(made, format), output)
    listed = [report for reports in made for report in reports]
    problems = [finding for report in listed for finding in findings(report)] if check else []
    for finding in problems:
        print_line(f"asmtune: {finding}", err=True)
    if problems or failed:
        raise typer.Exit(1)


def _grouped(arguments: KernelArguments, targets: Sequence[str]) -> list[dict[str, LoadedKernel]]:
    """Load a kernel for each target; return each of its launches by target."""
    groups: dict[tuple[str, int], dict[str, LoadedKernel]] = {}
    for name in targets:
        count: Counter[str] = Counter()
        for loaded in arguments.load(load_target(name)):
            kernel = loaded.problem.name
            groups.setdefault((kernel, count[kernel]), {})[name] = loaded
            count[kernel] += 1
    return [*groups.values()]


def _made(
    groups: list[dict[str, LoadedKernel]],
    choices: Mapping[str, Any],
    stored: str | None,
) -> tuple[list[list[PruneReport]], bool]:
    """Make the reports of each launch, one a target; return also whether a target has none.

    Raises:
        InputError: a record was named, and there are several launches.
    """
    if len(groups) > 1 and stored:
        names = ", ".join(next(iter(group.values())).problem.name for group in groups)
        raise InputError(f"--stored is for one launch; name a --kernel of {names}")
    made, failed = [], False
    for group in groups:
        loaded = next(iter(group.values()))
        config, stored_notes = _stored(stored, loaded) if stored is not None else (None, ())
        reports = make_reports(group, {**choices, "stored": config})
        made.append(
            [
                replace(report, notes=(*report.notes, *stored_notes, *group[name].notes))
                for name, report in reports.items()
            ]
        )
        failed |= len(reports) < len(group)
    return made, failed


def _check_targets(targets: Sequence[str]) -> None:
    devices = [load_target(name).name for name in targets]
    if len(set(devices)) != len(devices):
        raise InputError(f"--target: a device is given twice: {', '.join(targets)}")


def make_reports(
    group: Mapping[str, LoadedKernel], choices: Mapping[str, Any]
) -> dict[str, PruneReport]:
    """Make a report of a launch for each target; say on stderr which have none.

    Raises:
        CompileError: no config can run on any of them.
    """
    made: dict[str, PruneReport] = {}
    failed: list[CompileError] = []
    with ProgressBar() as progress:
        for name, loaded in group.items():
            try:
                made[name] = run_prune_report(
                    loaded.problem, loaded.space, target=name, progress=progress, **choices
                )
            except CompileError as error:
                failed.append(error)
    if not made:
        raise type(failed[0])("; ".join(map(str, failed)))
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
    from asmtune.predict.prune.flow import DEFAULT_FAILS

    named = {"registers", "shared_memory", "tensor_depth", "accumulators"}
    yield from (note for note in report.notes if note.startswith(DEFAULT_FAILS))
    for verdict in report.verdicts:
        failure = verdict.failure
        if failure is not None and failure.stage != "rules" and failure.kind not in named:
            yield f"{report.target}: {verdict.config}: {failure}"
        if verdict.kept and verdict.features and verdict.features.get("spill_words"):
            words = verdict.features["spill_words"]
            yield f"{report.target}: {verdict.config}: kept, and spills {words:.0f} words a thread"


def _rendered(made: list[list[PruneReport]], form: ReportFormat) -> object:
    """Render the reports of all launches.

    Raises:
        InputError: a page is asked for, and there are several launches.
    """
    every = [report for reports in made for report in reports]
    if form is ReportFormat.JSON:
        return report_json(every)
    if form is ReportFormat.CSV:
        return report_csv(every).rstrip("\n")
    # Tables and page load what reads assembly, which takes longer than to refuse an argument may.
    if form is ReportFormat.TEXT:
        from asmtune.report.tables import prune_table

        return Group(*map(prune_table, made))
    if len(made) > 1:
        names = ", ".join(dict.fromkeys(report.kernel for report in every))
        raise InputError(f"--format {form.value} is of one launch; name a --kernel of {names}")
    if form in (ReportFormat.TRITON, ReportFormat.PYTHON):
        if len(every) > 1:
            raise InputError(f"--format {form.value} is of one device; give one --target")
        return (triton_configs if form is ReportFormat.TRITON else python_file)(every[0])
    from asmtune.report.page import report_html

    return report_html(every)
