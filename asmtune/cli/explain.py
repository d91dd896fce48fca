"""`asmtune explain`: one config's verdict, numbers and hottest loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from asmtune.cli.arguments import KernelArguments
from asmtune.cli.assignments import parse_assignments
from asmtune.cli.output import write_result
from asmtune.cli.prune_report import Arguments, Axes, Dtype, Grid, Kernel, ScorerName, Shape
from asmtune.compile import ArtifactCache
from asmtune.config import Config
from asmtune.errors import InputError
from asmtune.features import ProfileReader
from asmtune.features.registry import Reading
from asmtune.funnel import Funnel
from asmtune.records import Artifact, Verdict
from asmtune.report.explanation import explanation
from asmtune.report.progress import ProgressBar
from asmtune.score import make_scorer
from asmtune.score.keep import Keep
from asmtune.settings import Settings
from asmtune.space import Space
from asmtune.target import Target, load_target


def explain(
    kernel: Kernel,
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
) -> None:
    """Show one config: its verdict, resources, instruction counts and hottest loop as PTX."""
    machine, settings = load_target(target), Settings.from_environment()
    arguments = KernelArguments(kernel, shape, dtype, tuple(axis), tuple(arg), grid)
    problem, space = arguments.load()
    chosen = _choose(config, space.first(**problem.shape))
    everything = Space.from_configs([chosen]) if alone else _with(space, chosen, problem.shape)
    with ProgressBar() as progress:
        funnel = Funnel(machine, make_scorer(scorer), settings, Keep.default(scorer), progress)
        report = funnel.prune(problem, everything)
    verdict = next(v for v in report.verdicts if v.config == chosen)
    shown = explanation(report, verdict, _reading(verdict, machine, settings))
    notes = (*report.notes, *arguments.assumptions())
    write_result(Group(shown, *(Text(note, "yellow") for note in notes)))


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
    found = ArtifactCache(settings.artifacts_dir, settings.artifacts_bytes).get(verdict.artifact)
    return ProfileReader(target).reading(found) if isinstance(found, Artifact) else None
