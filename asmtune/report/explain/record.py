"""All that is said of one config: gathered once, for a terminal and for JSON alike.

The config is judged, compared with another, and its code is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from asmtune.base.errors import CompileError, InputError, ProblemError
from asmtune.base.fingerprint import versions
from asmtune.base.json_codec import to_json
from asmtune.base.settings import Settings
from asmtune.compile.artifacts import ArtifactCache
from asmtune.core.config import AMD_OPTIONS, Config, check_types
from asmtune.core.hardware.model import Target
from asmtune.core.inputs.shapes import parse_assignments
from asmtune.core.records.artifacts import Artifact, Failure
from asmtune.core.records.verdicts import Features, PruneReport, Verdict
from asmtune.core.space.space import Space
from asmtune.predict.features.amd import reader_for
from asmtune.predict.features.catalog import FEATURES, ConfigReading
from asmtune.predict.prune.flow import A_GUESS, DEFAULT_FAILS, Funnel
from asmtune.predict.score.roofline import Suggestion, nearest, predict, suggestions
from asmtune.predict.why.findings import Explanation
from asmtune.report.cells import changes
from asmtune.report.code import CodeReader, CodeView, Language
from asmtune.report.documents import verdict_json
from asmtune.report.progress import ProgressBar
from asmtune.runtime.offline.kernel_sources import LoadedKernel
from asmtune.runtime.offline.pruning import PruneChoices

TERMS: Final[Mapping[str, str]] = {
    "tensor": "the tensor cores",
    "issue": "issuing instructions",
    "shared": "shared memory",
    "L1": "L1 and the load-store units",
    "special": "the special function units",
    "L2": "the way to L2",
    "start": "starting programs",
    "atomics": "updates of one address, one after another",
    "latency": "waiting that nothing hides",
    "DRAM": "DRAM",
    "launch": "the launch itself",
}
"""Words for where predicted time goes."""

COMPARED: Final = ("resources", "occupancy", "grid", "program")
"""Groups of features that a comparison shows where they differ."""

TELLING: Final = 0.01
"""Share of the slower config's predicted time; a term that differs by less decides nothing."""

ALIKE: Final = 0.005
"""Features whose values differ by less, of the larger, count as equal."""


@dataclass(frozen=True)
class Pair:
    """A feature, or a term of the predicted time, of the config explained and of the other."""

    name: str
    unit: str
    meaning: str
    own: float
    other: float

    @property
    def difference(self) -> float:
        """Subtract the other's from its own."""
        return self.own - self.other

    @property
    def differs(self) -> bool:
        """Say if the two differ by more than `ALIKE`."""
        return abs(self.difference) > ALIKE * max(abs(self.own), abs(self.other))


@dataclass(frozen=True)
class Comparison:
    """The explained config compared with another.

    Attributes:
        other_is: what the other is, such as "the winner by roofline".
        terms: terms that sum to the predicted times, the largest difference first.
        features: those of the resources, the grid and a program's work that differ.
    """

    other: Verdict
    other_is: str
    terms: tuple[Pair, ...] = ()
    features: tuple[Pair, ...] = ()

    @property
    def telling(self) -> list[Pair]:
        """List the terms that differ by a share of `TELLING` of the slower config's time."""
        slower = max(sum(pair.own for pair in self.terms), sum(pair.other for pair in self.terms))
        return [pair for pair in self.terms if abs(pair.difference) >= TELLING * slower]


def compared(own: Verdict, other: Verdict, other_is: str, target: Target) -> Comparison:
    """Hold two configs of one report against each other.

    Where one of them has no features there is nothing to compare but the verdicts.
    """
    if own.features is None or other.features is None:
        return Comparison(other, other_is)
    terms = _terms(own.features, other.features, target)
    return Comparison(other, other_is, terms, _differing(own.features, other.features))


def _terms(own: Features, other: Features, target: Target) -> tuple[Pair, ...]:
    own_terms, other_terms = (predict(features, target).terms_us for features in (own, other))
    pairs = [
        Pair(name, "us", TERMS[name], own_terms[name], other_terms[name]) for name in own_terms
    ]
    return tuple(sorted(pairs, key=lambda pair: -abs(pair.difference)))


def _differing(own: Features, other: Features) -> tuple[Pair, ...]:
    pairs = (
        Pair(feature.name, feature.unit, feature.meaning, own[feature.name], other[feature.name])
        for feature in FEATURES.values()
        if feature.group in COMPARED
    )
    return tuple(pair for pair in pairs if pair.differs)


Code = CodeView | Failure


@dataclass(frozen=True)
class Explained:
    """Everything that `asmtune explain` says of a config.

    Attributes:
        report: of all configs that were judged.
        suggestions: up to two changes that are predicted to be faster.
        artifact: its code of every stage; None where it did not compile.
        reading: its parsed assembly; None where it did not compile.
        code: its code, or why it cannot be shown; None where it did not compile, or the code was
            not asked for.
        guesses: assumptions behind its predicted time and its counts.
        why: its accesses by line and findings; None where it did not compile.
        searched: True if the whole space was judged, not this config alone.
    """

    report: PruneReport
    verdict: Verdict
    target: Target
    suggestions: tuple[Suggestion, ...] = ()
    comparison: Comparison | None = None
    artifact: Artifact | None = None
    reading: ConfigReading | None = None
    code: Code | None = None
    guesses: tuple[str, ...] = ()
    why: Explanation | None = None
    searched: bool = True

    @property
    def runs(self) -> bool:
        """Say if the config can run, kept or not."""
        return self.verdict.dropped_at not in ("rules", "compile")

    @property
    def instead(self) -> Verdict | None:
        """Find the config that can run with the fewest changes from one that cannot."""
        if self.runs:
            return None
        return nearest(self.verdict.config, (v for v in self.report.verdicts if v.rank is not None))

    @property
    def last_kept(self) -> Verdict | None:
        """Find the last config kept by rank, for one that was dropped by rank."""
        if self.verdict.dropped_at != "score" or self.report.selection is None:
            return None
        ranks = self.report.selection.ranks
        return next((v for v in self.report.verdicts if v.rank == ranks), None)


def suggestion_words(own: Verdict, suggestion: Suggestion) -> str:
    """Format as `num_stages 3 -> 4: waiting that nothing hides 12.3 -> 3.2 us`."""
    text = changes(own.config, suggestion.verdict.config)
    if suggestion.term is None or suggestion.term_us is None:
        return text
    before, after = suggestion.term_us
    return f"{text}: {TERMS[suggestion.term]} {before:.1f} -> {after:.1f} us"


def explained_json(explained: Explained) -> str:
    """Write a config as JSON: the verdict's document with its explanation, and its code if read."""
    own = explained.verdict
    more: dict[str, Any] = {
        "terms_us": own.terms_us,
        "guesses": list(explained.guesses),
        "suggestions": [
            {"words": suggestion_words(own, each), "config": _config(each.verdict)}
            for each in explained.suggestions
        ],
        "instead": _config(explained.instead),
        "comparison": to_json(explained.comparison),
        "why": None if explained.why is None else explained.why.document(),
    }
    if explained.code is not None:
        more["code"] = to_json(explained.code)
    return verdict_json(explained.report, explained.verdict, more)


def _config(verdict: Verdict | None) -> dict[str, Any] | None:
    if verdict is None:
        return None
    return {
        "config": to_json(verdict.config),
        "rank": verdict.rank,
        "predicted_us": verdict.predicted_us,
    }


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
