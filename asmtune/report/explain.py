"""A config explained: why it was dropped or won, what limits it, what to try, its hot loop.

All that is said is gathered once, as `Explained`, for a terminal and for JSON alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from asmtune.base.errors import CompileError, InputError, ProblemError
from asmtune.base.fingerprint import versions
from asmtune.base.json_codec import to_json
from asmtune.base.settings import Settings
from asmtune.base.text import amount
from asmtune.compile.artifacts import ArtifactCache
from asmtune.core.config import AMD_OPTIONS, Config, check_types
from asmtune.core.hardware.model import Target
from asmtune.core.inputs.shapes import parse_assignments
from asmtune.core.records.artifacts import Artifact, Failure
from asmtune.core.records.verdicts import PruneReport, Verdict
from asmtune.core.space.space import Space
from asmtune.ir.asm.amdgcn import AmdgpuResources
from asmtune.predict.features.amd import reader_for
from asmtune.predict.features.catalog import FEATURES, ConfigReading
from asmtune.predict.prune.flow import A_GUESS, DEFAULT_FAILS, Funnel
from asmtune.predict.score.roofline import Suggestion, nearest, rounded_terms, suggestions
from asmtune.predict.why.findings import Explanation
from asmtune.report.cells import ReportTable, changes, number, plain_table
from asmtune.report.code import CodeReader, CodeView, Language, hot_loop
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
    suggestions: tuple[Suggestion, ...] = ()
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


def named_config(text: str, base: Config) -> Config:
    """Make a config of assignments; axes left out are those of another config.

    Raises:
        InputError: a part is no assignment, or there is no such axis.
        SpaceError: an option is no positive whole number.
    """
    values = parse_assignments(text, "--config")
    known = {**base.to_dict(), "num_ctas": 1, "maxnreg": None}
    unknown = [name for name in values if name not in known and name not in AMD_OPTIONS]
    if unknown:
        raise InputError(f"--config: no axis {unknown[0]!r}; the axes are {', '.join(known)}")
    config = Config.from_dict({**base.values(), **values})
    check_types(config)
    return config


@dataclass(frozen=True)
class ExplainRequest:
    """A config to explain; if `alone`, no other is compiled."""

    loaded: LoadedKernel
    target: Target
    settings: Settings
    chosen: Config
    alone: bool

    @property
    def notes(self) -> tuple[str, ...]:
        """Say why the config is not in the space; nothing if it is."""
        why = self.outside(self.chosen)
        return () if why is None else (f"{self.chosen} is not in the space: {why}",)

    def outside(self, config: Config) -> str | None:
        """Say why the space lacks a config; None if it has it."""
        return self.loaded.space.lacks(config, **self.loaded.problem.shape)


def explained(request: ExplainRequest, scorer: str, language: Language | None) -> Explained:
    """Judge a config among its space, or alone, and read its code in a language.

    Raises:
        CompileError: no config of the space can run.
    """
    report = _report(request, scorer)
    verdict = next(one for one in report.verdicts if one.config == request.chosen)
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
        suggestions=suggestions(verdict, inside),
        artifact=artifact,
        reading=None if artifact is None else reader_for(request.target).reading(artifact),
        code=code,
        guesses=() if artifact is None else reader.guesses(verdict.config, artifact),
        why=None if artifact is None else reader.why(verdict, artifact, inside),
        searched=not request.alone,
    )


def _report(request: ExplainRequest, scorer: str) -> PruneReport:
    loaded, shape = request.loaded, request.loaded.problem.shape
    space = Space.from_configs([request.chosen]) if request.alone else loaded.space
    with ProgressBar() as progress:
        choices = PruneChoices.of(scorer, None, None)
        funnel = Funnel(
            request.target,
            choices.scorer,
            request.settings,
            choices.keep,
            progress,
            compile=choices.compile,
            wanted=(request.chosen,),
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
            verdicts = tuple(funnel.judge(loaded.problem, [request.chosen]))
            launch = (loaded.problem.name, shape, loaded.problem.dtypes)
            return PruneReport(*launch, request.target.name, scorer, verdicts, {}, versions())


def explanation(explained: Explained) -> Group:
    """Lay out everything that `asmtune explain` says."""
    verdict, scorer = explained.verdict, explained.report.scorer
    ranked = sum(v.rank is not None for v in explained.report.verdicts)
    place = f"rank {verdict.rank} of {ranked} by {scorer}" if verdict.rank else "not ranked"
    head = Text.assemble(
        (str(verdict.config), "bold"),
        f"\non {explained.report.target}: ",
        (_fate_words(verdict), "bold"),
        f", {place}",
    )
    parts: list[RenderableType] = [head]
    parts += _fate(explained)
    if verdict.predicted_us is not None:
        parts += _prediction(explained)
    if explained.why is not None:
        parts += why_lines(explained.why)
    if explained.reading is not None:
        parts.append(_resources(explained.reading))
    parts += _code(explained)
    return Group(*parts)


def _fate_words(verdict: Verdict) -> str:
    return "kept" if verdict.kept else f"dropped at {verdict.dropped_at}"


def _fate(explained: Explained) -> Iterator[Text]:
    verdict = explained.verdict
    if verdict.failure is not None and verdict.dropped_at == "compile":
        # Its reason is the first line of the failure.
        yield Text(f"  does not compile: {verdict.failure}")
        yield from (Text(f"  {line}", "dim") for line in verdict.failure.detail.splitlines()[1:])
    else:
        yield from (Text(f"  {reason}") for reason in verdict.reasons)
    if (last := explained.last_kept) is not None:
        times = f"predicted {number(verdict.predicted_us)} us"
        yield Text(f"  {times}; the last kept, rank {last.rank}, {number(last.predicted_us)} us")
    if (runs := explained.instead) is not None:
        yield Text(f"  the nearest that runs: {_named(verdict, runs)}")


def _named(own: Verdict, other: Verdict) -> str:
    """Format another config as `num_stages 3 -> 4 (36.2 us, -10%; rank 4)`."""
    return f"{changes(own.config, other.config)} ({_gain(own, other)})"


def _gain(own: Verdict, other: Verdict) -> str:
    text = f"{number(other.predicted_us)} us"
    if own.predicted_us and other.predicted_us and own.dropped_at not in ("rules", "compile"):
        text += f", {other.predicted_us / own.predicted_us - 1:+.0%}"
    return f"{text}; rank {other.rank}"


def _prediction(explained: Explained) -> Iterator[RenderableType]:
    verdict, bottleneck = explained.verdict, explained.verdict.bottleneck or ""
    begins = "predicted" if explained.runs else "could it run, predicted"
    terms = rounded_terms(verdict.terms_us or {}, verdict.predicted_us or 0.0, 1)
    text = f", which takes {number(terms[bottleneck])} us of them" if terms else ""
    yield Text.assemble(
        f"{begins} {number(verdict.predicted_us)} us, limited by ", (bottleneck, "bold"), text
    )
    if terms:
        yield _terms_table(terms, verdict.predicted_us or 0.0)
    yield from (Text(f"  a guess: {guess}", "yellow") for guess in explained.guesses)
    if explained.runs and explained.searched and not explained.suggestions:
        yield Text("  nothing to try: no config here is predicted to be faster")
    for word, suggestion in zip(("try: ", "or:  "), explained.suggestions, strict=False):
        named = suggestion_words(verdict, suggestion)
        yield Text(f"  {word}{named} ({_gain(verdict, suggestion.verdict)})")


def why_lines(why: Explanation) -> Iterator[Text]:
    """Lay out accesses by line and findings; what is empty is left out."""
    if why.failure:
        yield Text(f"why it takes its time cannot be said: {why.failure}", "yellow")
    if why.accesses:
        yield Text("Memory accesses by line", "italic")
    yield from (Text(f"  {access}") for access in why.accesses)
    if why.findings:
        yield Text("Why it takes this long", "italic")
    for finding in why.findings:
        yield Text.assemble("  ", (finding.kind, "bold"), f": {finding.text}")


def _terms_table(terms: Mapping[str, float], total_us: float) -> ReportTable:
    """Tabulate the terms of a predicted time, largest first, and their sum."""
    table = plain_table("Predicted time", ("limit", "", "us", "share"), left=2)
    for name, us in terms.items():
        if us:
            table.add_row(name, TERMS.get(name, ""), number(us), f"{us / total_us:.0%}")
    table.add_section()
    table.add_row("all", "their sum is the prediction", number(total_us), "")
    return table


def _resources(reading: ConfigReading) -> ReportTable:
    table = plain_table("Resources", ("",), left=0)
    table.add_column("", left=True)
    for feature in FEATURES.values():
        if feature.group in ("resources", "occupancy"):
            table.add_row(amount(feature.read(reading), feature.unit), feature.meaning)
    resources = reading.resources
    if isinstance(resources, AmdgpuResources):
        table.add_row(f"{resources.agprs}", "AGPRs among a thread's registers; the rest are VGPRs.")
        table.add_row(f"{resources.sgprs}", "SGPRs of a wavefront.")
    table.add_row(reading.occupancy.limiter, "What allows no further program on an SM.")
    return table


def _code(explained: Explained) -> Iterator[RenderableType]:
    code = explained.code
    if isinstance(code, Failure):
        yield Text(f"its code cannot be shown: {code}", "yellow")
    elif code is not None:
        yield hot_loop(code)
