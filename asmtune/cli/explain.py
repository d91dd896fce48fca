"""`asmtune explain`: one config, why it was dropped or won, its code; or a tuning run."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Final

import typer
from rich.console import Group
from rich.text import Text

from asmtune.base.errors import InputError
from asmtune.base.settings import Settings
from asmtune.cli.arguments import KernelArguments, refuse_options
from asmtune.cli.output import write_result
from asmtune.cli.prune_report import Arguments, Axes, Dtype, Grid, ScorerName, Shape
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import load_target
from asmtune.predict.score.scorers import make_scorer
from asmtune.report.code.model import Language
from asmtune.report.explain.counters import CounterReport, paired
from asmtune.report.explain.ncu import CountedLaunch, CountersError, read_counters
from asmtune.report.explain.record import Explained, explained_json
from asmtune.report.explain.request import ExplainRequest, explained, named_config
from asmtune.report.explain.text import explanation
from asmtune.report.runs import run_json, run_report
from asmtune.store.trace.reader import read_trace
from asmtune.store.trace.run import find_run, names_run


class Code(StrEnum):
    """Languages of the code that is shown."""

    PTX = "ptx"
    SASS = "sass"
    AMDGCN = "amdgcn"


_LANGUAGES: Final[dict[Code, Language]] = {
    Code.PTX: "PTX",
    Code.SASS: "SASS",
    Code.AMDGCN: "AMDGCN",
}


def _language(code: Code | None, target: Target) -> Language:
    """Return the language to show: by default the target's assembly.

    Raises:
        InputError: the target has no such code.
    """
    own = (Code.AMDGCN,) if target.backend == "hip" else (Code.PTX, Code.SASS)
    if code is not None and code not in own:
        known = " or ".join(own)
        raise InputError(f"--code {code}: the code of {target.name} ({target.arch}) is {known}")
    return _LANGUAGES[code or own[0]]


_VENDORS: Final = {"cubin": "cuda", "ptx": "cuda", "hsaco": "hip", "amdgcn": "hip"}


def _refuse_code(subject: str, target: Target) -> None:
    """Refuse a file of code, whose kernel's source is needed.

    Raises:
        InputError: the file is one; also says where it is of another vendor than the target.
    """
    vendor = _VENDORS.get(subject.rpartition(".")[2])
    if vendor is None:
        return
    whose = "NVIDIA" if vendor == "cuda" else "AMD"
    other = f", and {target.name} ({target.arch}) is none" if vendor != target.backend else ""
    raise InputError(
        f"{subject}: code of an {whose} device{other}; "
        "give the kernel's source, a module or file.py:function, and explain compiles it"
    )


Subject = Annotated[
    str,
    typer.Argument(
        metavar="KERNEL|RUN",
        help="A kernel's name, a file, or file.py:function; or a run, by id or .jsonl.",
    ),
]


def explain(
    context: typer.Context,
    subject: Subject,
    config: Annotated[
        str | None,
        typer.Option(help="BLOCK_M=128,...,num_warps=8; what is left out is the default's."),
    ] = None,
    target: Annotated[str, typer.Option(help="A device's name or a JSON file.")] = "H200",
    shape: Shape = None,
    dtype: Dtype = None,
    axis: Axes = [],  # noqa: B006 - typer copies it
    arg: Arguments = [],  # noqa: B006
    grid: Grid = None,
    scorer: ScorerName = "roofline",
    alone: Annotated[bool, typer.Option(help="Do not rank it among the space's configs.")] = False,
    against: Annotated[
        str | None,
        typer.Option(
            help="Another config: best, default, stored, or BLOCK_M=64,..., where what is left "
            "out is the explained one's. Without it: the stored winner, else the best."
        ),
    ] = None,
    code: Annotated[
        Code | None,
        typer.Option(help="Code to show: ptx (which text has anyway), sass; or amdgcn."),
    ] = None,
    counters: Annotated[
        bool, typer.Option("--counters", help="Set the model beside counters of ncu, on a GPU.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="JSON instead of text.")] = False,
) -> None:
    """Show one config: why it was dropped or won, what limits it, what to try, its hottest loop.

    It is held against another: where the difference of their predicted times comes from.

    Of a run of `asmtune tune` or of the decorator: seconds by stage, what fell where, what was
    timed, why it ended. `asmtune runs` lists them; the options but --json are for kernels.
    """
    machine, settings = load_target(target), Settings.from_environment()
    _refuse_code(subject, machine)
    if names_run(subject):
        refuse_options(context, ("subject", "json_"), f"{subject!r} is a run")
        run = read_trace(find_run(settings.runs_dir, subject))
        write_result(run_json(run) if json_ else run_report(run))
        return
    language = _language(code, machine)
    make_scorer(scorer)  # an unknown one is refused before the kernel's file is imported
    arguments = KernelArguments(subject, shape, dtype, tuple(axis), tuple(arg), grid)
    loaded = arguments.load_all()
    default = loaded.space.first(**loaded.problem.shape)
    chosen = default if config is None else named_config(config, "--config", default)
    request = ExplainRequest(loaded, machine, settings, chosen, against, alone=alone)
    result = explained(request, default, scorer, language)
    if counters:
        result = replace(result, counters=_counters(arguments, result))
    notes = (*request.notes(result), *arguments.assumptions())
    result = replace(result, report=replace(result.report, notes=(*result.report.notes, *notes)))
    if json_:
        write_result(explained_json(result, code=code is not None))
        return
    notes_shown = (Text(note, "yellow") for note in result.report.notes)
    write_result(Group(explanation(result), *notes_shown))


def _counters(arguments: KernelArguments, result: Explained) -> CounterReport:
    """Count a launch of the config on this machine's GPU; a failure is one line."""
    verdict, reading = result.verdict, result.reading
    if verdict.features is None or reading is None:
        return CounterReport(failure="the config does not compile, so that nothing can be counted")
    report = result.report
    own = arguments.kernel, dict(report.shape), arguments.dtype, arguments.values, arguments.grid
    try:
        launch = CountedLaunch(*own, verdict.config.to_dict())
        counted = read_counters(launch, reading.artifact.entry)
    except CountersError as error:
        return CounterReport(failure=str(error))
    return paired(verdict.features, result.target, result.why, counted)
