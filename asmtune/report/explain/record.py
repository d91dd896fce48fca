"""All that is said of one config: gathered once, for a terminal and for JSON alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from asmtune.base.json_codec import to_json
from asmtune.core.hardware.model import Target
from asmtune.core.records.artifacts import Artifact, Failure
from asmtune.core.records.verdicts import Features, PruneReport, Verdict
from asmtune.predict.features.catalog import FEATURES, ConfigReading
from asmtune.predict.score.roofline import Suggestion, nearest, predict
from asmtune.predict.why.findings import Explanation
from asmtune.report.cells import changes
from asmtune.report.code import CodeView
from asmtune.report.documents import verdict_json

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
