"""What `asmtune explain` says of a config: judged, compared and read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from asmtune.base.errors import CompileError, StoreError
from asmtune.base.fingerprint import versions
from asmtune.base.settings import Settings
from asmtune.report.explain.against import STORED, Rival, measured, rival_after, rival_before
from asmtune.compile.artifacts import ArtifactCache
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.records.artifacts import Artifact
from asmtune.core.records.pruned import PruneReport
from asmtune.core.records.verdicts import Verdict
from asmtune.core.space.space import Space
from asmtune.predict.features.reader import ProfileReader
from asmtune.predict.prune.flow import A_GUESS, DEFAULT_FAILS, Funnel
from asmtune.predict.score.keep import Keep
from asmtune.predict.score.scorers import make_scorer
from asmtune.report.code.model import Language
from asmtune.report.code.reader import CodeReader
from asmtune.report.explain.comparison import compared
from asmtune.report.explain.record import Code, Explained, try_out
from asmtune.report.progress import ProgressBar
from asmtune.store.lookup import StoreLookup
from asmtune.studies.stored import LoadedKernel, tuned_of


@dataclass(frozen=True)
class ExplainRequest:
    """What is to be explained.

    Attributes:
        loaded: the kernel.
        target: the machine.
        settings: limits and folders.
        chosen: the config.
        against: the other one, as it was given.
        alone: whether nothing but these two is compiled.
    """

    loaded: LoadedKernel
    target: Target
    settings: Settings
    chosen: Config
    against: str | None
    alone: bool

    def stored(self) -> StoreLookup:
        """What the stores hold; nothing is looked up where no comparison could want it.

        Raises:
            StoreError: the stored config was asked for, and its folder cannot be looked into.
        """
        if self.against not in (None, STORED) or (self.alone and self.against is None):
            return StoreLookup("miss")
        try:
            return tuned_of(self.loaded, self.target, self.settings)
        except StoreError:
            if self.against == STORED:
                raise
            return StoreLookup("miss")

    def notes(self, found: Explained) -> Iterable[str]:
        """Which of the two configs is none of the space, and why."""
        space, shape = self.loaded.space, self.loaded.problem.shape
        other = () if found.comparison is None else (found.comparison.other,)
        for verdict in (found.verdict, *other):
            derived = any(reason.rule == "derived_cap" for reason in verdict.reasons)
            why = None if derived else space.lacks(verdict.config, **shape)
            if why is not None:
                yield f"{verdict.config} is not in the space: {why}"


def explained(asked: ExplainRequest, default: Config, scorer: str, language: Language) -> Explained:
    """Everything that is said of a config.

    Args:
        asked: what is to be explained.
        default: of the space.
        scorer: name of what ranks.
        language: of the code.

    Raises:
        InputError: the other config cannot be what was asked for.
        CompileError: no config of the space can run.
        StoreError: the stored config was asked for, and the store cannot be looked into.
    """
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
    reader = _Reader(asked, language)
    artifact = reader.artifact(verdict)
    return Explained(
        report=report,
        verdict=verdict,
        target=asked.target,
        suggestions=try_out(report, verdict),
        comparison=comparison,
        reading=None if artifact is None else ProfileReader(asked.target).reading(artifact),
        code=reader.code(verdict, artifact),
        other_code=reader.code_of(comparison.other) if comparison else None,
        guesses=() if artifact is None else reader.views.guesses(verdict.config, artifact),
        searched=not asked.alone,
    )


def _report(asked: ExplainRequest, rival: Rival | None, scorer: str) -> PruneReport:
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
            report = funnel.prune(loaded.problem, space)
            # What is guessed of this config is told with its times; alone, the first config
            # stands for a default, which it need not be.
            hidden = (A_GUESS, DEFAULT_FAILS) if asked.alone else (A_GUESS,)
            notes = (note for note in report.notes if not note.startswith(hidden))
            return replace(report, notes=tuple(notes))
        except CompileError:
            if not asked.alone:
                raise
            # Why a single config does not run is what was asked for.
            return _fallen(asked, funnel.judge(loaded.problem, listed), scorer)


def _fallen(asked: ExplainRequest, verdicts: Iterable[Verdict], scorer: str) -> PruneReport:
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


class _Reader:
    """Reads the two configs that are held against each other; what they share is read once."""

    def __init__(self, asked: ExplainRequest, language: Language) -> None:
        self.views = CodeReader(asked.loaded.problem, asked.target)
        self._artifacts = ArtifactCache.of(asked.settings)
        self._language = language

    def artifact(self, verdict: Verdict) -> Artifact | None:
        if verdict.artifact is None:
            return None
        found = self._artifacts.get(verdict.artifact)
        return found if isinstance(found, Artifact) else None

    def code_of(self, verdict: Verdict) -> Code | None:
        return self.code(verdict, self.artifact(verdict))

    def code(self, verdict: Verdict, artifact: Artifact | None) -> Code | None:
        if artifact is None:
            return None
        view = self.views.sass if self._language == "SASS" else self.views.ptx
        return view(verdict.config, artifact)
