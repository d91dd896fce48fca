"""`asmtune explain`: one config's verdict, numbers and hottest loop; or a tuning run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from asmtune.cli.arguments import KernelArguments
from asmtune.cli.assignments import parse_assignments
from asmtune.cli.output import write_result
from asmtune.cli.prune_report import Arguments, Axes, Dtype, Grid, ScorerName, Shape
from asmtune.compile import ArtifactCache
from asmtune.config import Config
from asmtune.errors import InputError
from asmtune.features import ProfileReader
from asmtune.features.registry import Reading
from asmtune.funnel import Funnel
from asmtune.records import Artifact, Verdict
from asmtune.report.documents import verdict_json
from asmtune.report.explanation import explanation
from asmtune.report.progress import ProgressBar
from asmtune.report.run_documents import run_json
from asmtune.report.runs import run_report
from asmtune.score import make_scorer
from asmtune.score.keep import Keep
from asmtune.settings import Settings
from asmtune.space import Space
from asmtune.target import Target, load_target
from asmtune.trace import find_run, names_run, read_trace

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
    json_: Annotated[bool, typer.Option("--json", help="JSON instead of text.")] = False,
) -> None:
    """Show one config: its verdict, resources, instruction counts and hottest loop as PTX.

    Of a run of `asmtune tune` or of the decorator: seconds by stage, what fell where, what was
    timed, why it ended. `asmtune runs` lists them; the options but --json are for kernels.
    """
    machine, settings = load_target(target), Settings.from_environment()
    if names_run(subject):
        _refuse_options(context, subject)
        run = read_trace(find_run(settings.runs_dir, subject))
        write_result(run_json(run) if json_ else run_report(run))
        return
    arguments = KernelArguments(subject, shape, dtype, tuple(axis), tuple(arg), grid)
    problem, space = arguments.load()
    chosen = _choose(config, space.first(**problem.shape))
    everything = Space.from_configs([chosen]) if alone else _with(space, chosen, problem.shape)
    with ProgressBar() as progress:
        funnel = Funnel(machine, make_scorer(scorer), settings, Keep.default(scorer), progress)
        report = funnel.prune(problem, everything)
    verdict = next(v for v in report.verdicts if v.config == chosen)
    notes = (*report.notes, *arguments.assumptions())
    if json_:
        write_result(verdict_json(replace(report, notes=notes), verdict))
        return
    shown = explanation(report, verdict, _reading(verdict, machine, settings))
    write_result(Group(shown, *(Text(note, "yellow") for note in notes)))


def _refuse_options(context: typer.Context, run: str) -> None:
    """What says how to judge a kernel says nothing of a run."""
    for name in context.params:
        source = context.get_parameter_source(name)
        given = source is not None and source.name == "COMMANDLINE"
        if given and name not in ("subject", "json_"):
            raise InputError(f"--{name} is for kernels, and {run!r} is a run")


def _choose(text: str | None, default: Config) -> Config:
    if text is None:
        return default
    values = parse_assignments(text, "--config")
    known = {**default.to_dict(), "num_ctas": 1, "maxnreg": None}
    unknown = [name for name in values if name not in known]
    if unknown:
        raise InputError(f"--config: no axis {unknown[0]!r}; the axes are {', '.join(known)}")
    return Config.from_dict({**default.to_dict(), **values})


def _with(space: Space, config: Config, shape: Mapping[str, Any]) -> Space:
    configs = list(space.configs(**shape))
    return Space.from_configs(list(dict.fromkeys([*configs, config])), space.default)


def _reading(verdict: Verdict, target: Target, settings: Settings) -> Reading | None:
    if verdict.artifact is None:
        return None
    found = ArtifactCache.of(settings).get(verdict.artifact)
    return ProfileReader(target).reading(found) if isinstance(found, Artifact) else None
