"""`asmtune explain`: one config, why it was dropped or won, its code; or a tuning run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from asmtune.cli.against import STORED, Rival, measured, named_config, rival_after, rival_before
from asmtune.cli.arguments import KernelArguments, Loaded
from asmtune.cli.output import write_result
from asmtune.cli.prune_report import Arguments, Axes, Dtype, Grid, ScorerName, Shape
from asmtune.cli.stored import tuned_of
from asmtune.compile import ArtifactCache
from asmtune.config import Config
from asmtune.errors import CompileError, InputError, StoreError
from asmtune.features import ProfileReader
from asmtune.fingerprint import versions
from asmtune.funnel import Funnel
from asmtune.records import Artifact, PruneReport, Verdict
from asmtune.report.code import CodeReader
from asmtune.report.comparison import compared
from asmtune.report.explained import Code, Explained, explained_json, try_out
from asmtune.report.explanation import explanation
from asmtune.report.progress import ProgressBar
from asmtune.report.run_documents import run_json
from asmtune.report.runs import run_report
from asmtune.score import make_scorer
from asmtune.score.keep import Keep
from asmtune.settings import Settings
from asmtune.space import Space
from asmtune.store import Lookup
from asmtune.target import Target, load_target
from asmtune.trace import find_run, names_run, read_trace


class Language(StrEnum):
    """Which code is shown."""

    PTX = "ptx"
    SASS = "sass"


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
            help="Another config: best, default, stored, or BLOCK_M=64,... of which what is left "
            "out is as in --config; without it the stored winner, else the best."
        ),
    ] = None,
    code: Annotated[
        Language | None, typer.Option(help="Code to show: ptx (which text has anyway) or sass.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="JSON instead of text.")] = False,
) -> None:
    """Show one config: why it was dropped or won, what limits it, what to try, its hottest loop.

    It is held against another: where the difference of their predicted times comes from.

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
    loaded = arguments.load_all()
    default = loaded.space.first(**loaded.problem.shape)
    chosen = default if config is None else named_config(config, "--config", default)
    asked = Asked(loaded, machine, settings, chosen, against, alone=alone)
    found = _explained(asked, default, scorer, code or Language.PTX)
    notes = (*asked.notes(found), *arguments.assumptions())
    found = replace(found, report=replace(found.report, notes=(*found.report.notes, *notes)))
    if json_:
        write_result(explained_json(found, code=code is not None))
        return
    told = (Text(note, "yellow") for note in found.report.notes)
    write_result(Group(explanation(found), *told))


def _refuse_options(context: typer.Context, run: str) -> None:
    """What says how to judge a kernel says nothing of a run."""
    for name in context.params:
        source = context.get_parameter_source(name)
        given = source is not None and source.name == "COMMANDLINE"
        if given and name not in ("subject", "json_"):
            raise InputError(f"--{name} is for kernels, and {run!r} is a run")


@dataclass(frozen=True)
class Asked:
    """What is to be explained.

    Attributes:
        loaded: the kernel.
        target: the machine.
        settings: limits and folders.
        chosen: the config.
        against: the other one, as it was given.
        alone: whether nothing but these two is compiled.
    """

    loaded: Loaded
    target: Target
    settings: Settings
    chosen: Config
    against: str | None
    alone: bool

    def stored(self) -> Lookup:
        """What the stores hold; nothing is looked up where no comparison could want it.

        Raises:
            StoreError: the stored config was asked for, and its folder cannot be looked into.
        """
        if self.against not in (None, STORED) or (self.alone and self.against is None):
            return Lookup("miss")
        try:
            return tuned_of(self.loaded, self.target, self.settings)
        except StoreError:
            if self.against == STORED:
                raise
            return Lookup("miss")

    def notes(self, found: Explained) -> Iterable[str]:
        """Which of the two configs is none of the space, and why."""
        space, shape = self.loaded.space, self.loaded.problem.shape
        other = () if found.comparison is None else (found.comparison.other,)
        for verdict in (found.verdict, *other):
            derived = any(reason.rule == "derived_cap" for reason in verdict.reasons)
            why = None if derived else space.lacks(verdict.config, **shape)
            if why is not None:
                yield f"{verdict.config} is not in the space: {why}"


def _explained(asked: Asked, default: Config, scorer: str, language: Language) -> Explained:
    stored = asked.stored()
    rival = rival_before(asked.against, asked.chosen, default, stored)
    report = _report(asked, rival, scorer)
    if rival is None and (asked.against is not None or not asked.alone):
        rival = rival_after(asked.against, asked.chosen, report.verdicts, report.scorer)
    by_config = {verdict.config: verdict for verdict in report.verdicts}
    verdict = by_config[asked.chosen]
    comparison = None
    if rival is not None:
        other = by_config[rival.config]
        comparison = compared(verdict, other, rival.words, asked.target)
        record = stored.record if stored.outcome == "hit" else None
        times = measured(record, verdict.config), measured(record, other.config)
        comparison = replace(comparison, measured_us=times)
    if stored.outcome == "stale":
        note = f"what is stored for this key is stale, and not compared with: {stored.detail}"
        report = replace(report, notes=(*report.notes, note))
    artifact = _artifact(verdict, asked.settings)
    return Explained(
        report=report,
        verdict=verdict,
        target=asked.target,
        suggestions=try_out(report, verdict),
        comparison=comparison,
        reading=None if artifact is None else ProfileReader(asked.target).reading(artifact),
        code=_code(asked, verdict, language),
        other_code=_code(asked, comparison.other, language) if comparison else None,
    )


def _report(asked: Asked, rival: Rival | None, scorer: str) -> PruneReport:
    """Of the space, or of the configs alone that are held against each other."""
    loaded, others = asked.loaded, [] if rival is None else [rival.config]
    shape = loaded.problem.shape
    listed = [asked.chosen, *others]
    space = Space.from_configs(listed)
    if not asked.alone:
        listed = list(dict.fromkeys([*loaded.space.configs(**shape), *listed]))
        space = Space.from_configs(listed, loaded.space.default)
    with ProgressBar() as progress:
        keep = Keep.default(scorer)
        funnel = Funnel(asked.target, make_scorer(scorer), asked.settings, keep, progress)
        try:
            return funnel.prune(loaded.problem, space)
        except CompileError:
            if not asked.alone:
                raise
            # Why a single config does not run is what was asked for.
            return _fallen(asked, funnel.judge(loaded.problem, listed), scorer)


def _fallen(asked: Asked, verdicts: Iterable[Verdict], scorer: str) -> PruneReport:
    problem = asked.loaded.problem
    return PruneReport(
        problem.name,
        problem.shape,
        problem.dtypes,
        asked.target.name,
        scorer,
        tuple(verdicts),
        {},
        versions(),
    )


def _artifact(verdict: Verdict, settings: Settings) -> Artifact | None:
    if verdict.artifact is None:
        return None
    found = ArtifactCache.of(settings).get(verdict.artifact)
    return found if isinstance(found, Artifact) else None


def _code(asked: Asked, verdict: Verdict, language: Language) -> Code | None:
    artifact = _artifact(verdict, asked.settings)
    if artifact is None:
        return None
    reader = CodeReader(asked.loaded.problem, asked.target)
    if language is Language.SASS:
        return reader.sass(verdict.config, artifact)
    return reader.ptx(verdict.config, artifact)
