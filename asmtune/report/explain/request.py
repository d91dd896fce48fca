"""Explains a config: judges it, compares it with another, and reads its code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from asmtune.base.errors import CompileError, InputError, ProblemError
from asmtune.base.fingerprint import versions
from asmtune.base.settings import Settings
from asmtune.compile.artifacts import ArtifactCache
from asmtune.core.config import AMD_OPTIONS, Config, check_types
from asmtune.core.hardware.model import Target
from asmtune.core.inputs.shapes import parse_assignments
from asmtune.core.records.artifacts import Artifact
from asmtune.core.records.verdicts import PruneReport, Verdict
from asmtune.core.space.space import Space
from asmtune.predict.features.amd import reader_for
from asmtune.predict.prune.flow import A_GUESS, DEFAULT_FAILS, Funnel
from asmtune.predict.score.roofline import suggestions
from asmtune.report.code import CodeReader, Language
from asmtune.report.explain.record import Explained, compared
from asmtune.report.progress import ProgressBar
from asmtune.runtime.offline.kernel_sources import LoadedKernel
from asmtune.runtime.offline.pruning import PruneChoices

BEST: Final = "best"
DEFAULT: Final = "default"


@dataclass(frozen=True)
class ComparedConfig:
    """The config that another one is compared with, and a description such as "the default"."""

    config: Config
    words: str


def named_config(text: str, option: str, base: Config) -> Config:
    """Make a config of assignments; axes left out are those of another config.

    Raises:
        InputError: a part is no assignment, or there is no such axis.
        SpaceError: an option is no positive whole number.
    """
    values = parse_assignments(text, option)
    known = {**base.to_dict(), "num_ctas": 1, "maxnreg": None}
    unknown = [name for name in values if name not in known and name not in AMD_OPTIONS]
    if unknown:
        raise InputError(f"{option}: no axis {unknown[0]!r}; the axes are {', '.join(known)}")
    config = Config.from_dict({**base.values(), **values})
    check_types(config)
    return config


def rival_before(text: str | None, chosen: Config, default: Config) -> ComparedConfig | None:
    """Find the other config, if it is known before anything is compiled.

    `text` is as `--against` gives it; None, like "best", for what the ranking says.

    Raises:
        InputError: it cannot be what was asked for.
    """
    if text in (None, BEST):
        return None
    if text == DEFAULT:
        return ComparedConfig(default, "the default")
    if "=" not in text:
        raise InputError(
            f"--against: {text!r} is neither NAME=VALUE,... nor one of {BEST}, {DEFAULT}"
        )
    return ComparedConfig(named_config(text, "--against", chosen), "the one named")


def rival_after(chosen: Config, verdicts: Sequence[Verdict], scorer: str) -> ComparedConfig | None:
    """Find the best ranked config, or the next for the best itself; None if no other is ranked."""
    ranked = {verdict.rank: verdict.config for verdict in verdicts if verdict.rank is not None}
    if ranked.get(1) != chosen:
        return ComparedConfig(ranked[1], f"the winner by {scorer}") if ranked else None
    return ComparedConfig(ranked[2], f"the runner-up by {scorer}") if 2 in ranked else None


@dataclass(frozen=True)
class ExplainRequest:
    """A config to explain, and the one to compare it with; if `alone`, no other is compiled."""

    loaded: LoadedKernel
    target: Target
    settings: Settings
    chosen: Config
    against: str | None
    alone: bool

    def notes(self, result: Explained) -> Iterable[str]:
        """Say which of the two configs is not in the space, and why."""
        other = () if result.comparison is None else (result.comparison.other,)
        for verdict in (result.verdict, *other):
            why = self.outside(verdict.config)
            if why is not None:
                yield f"{verdict.config} is not in the space: {why}"

    def outside(self, config: Config) -> str | None:
        """Say why the space lacks a config; None if it has it."""
        return self.loaded.space.lacks(config, **self.loaded.problem.shape)


def explained(
    request: ExplainRequest, default: Config, scorer: str, language: Language | None
) -> Explained:
    """Judge a config, compare it with another, and read its code in a language.

    Raises:
        InputError: the other config cannot be what was asked for.
        CompileError: no config of the space can run.
    """
    rival = rival_before(request.against, request.chosen, default)
    report = _report(request, rival, scorer)
    if rival is None and (request.against is not None or not request.alone):
        rival = rival_after(request.chosen, report.verdicts, report.scorer)
    by_config = {verdict.config: verdict for verdict in report.verdicts}
    verdict = by_config[request.chosen]
    comparison = None
    if rival is not None:
        other = by_config[rival.config]
        comparison = compared(verdict, other, rival.words, request.target)
    reader = CodeReader(request.loaded.problem, request.target)
    found = ArtifactCache.of(request.settings).get(verdict.artifact) if verdict.artifact else None
    artifact = found if isinstance(found, Artifact) else None
    code = None
    if artifact is not None and language is not None:
        is_sass = language == "SASS"
        code = reader.sass(artifact) if is_sass else reader.assembly(verdict.config, artifact)
    inside = [v for v in report.verdicts if request.outside(v.config) is None]
    return Explained(
        report=report,
        verdict=verdict,
        target=request.target,
        suggestions=suggestions(verdict, inside),
        comparison=comparison,
        artifact=artifact,
        reading=None if artifact is None else reader_for(request.target).reading(artifact),
        code=code,
        guesses=() if artifact is None else reader.guesses(verdict.config, artifact),
        why=None if artifact is None else reader.why(verdict, artifact, inside),
        searched=not request.alone,
    )


def _report(request: ExplainRequest, rival: ComparedConfig | None, scorer: str) -> PruneReport:
    loaded, others = request.loaded, [] if rival is None else [rival.config]
    shape = loaded.problem.shape
    listed = [request.chosen, *others]
    space = Space.from_configs(listed) if request.alone else loaded.space
    with ProgressBar() as progress:
        choices = PruneChoices.of(scorer, None, None)
        funnel = Funnel(
            request.target,
            choices.scorer,
            request.settings,
            choices.keep,
            progress,
            compile=choices.compile,
            wanted=tuple(listed),
        )
        try:
            report = funnel.prune(loaded.problem, space)
            # Guesses about this config are shown with its times; alone, the first config takes
            # the place of a default, which it need not be.
            hidden = (A_GUESS, DEFAULT_FAILS) if request.alone else (A_GUESS,)
            notes = tuple(note for note in report.notes if not note.startswith(hidden))
            return replace(report, notes=notes)
        except (CompileError, ProblemError):
            if not request.alone:
                raise
            # Why a single config does not run is what was asked for.
            verdicts = tuple(funnel.judge(loaded.problem, listed))
            launch = (loaded.problem.name, shape, loaded.problem.dtypes)
            return PruneReport(*launch, request.target.name, scorer, verdicts, {}, versions())
