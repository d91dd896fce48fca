"""All that is said of one config: gathered once, for a terminal and for JSON alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.pruned import PruneReport
from asmtune.core.records.values import to_json
from asmtune.core.records.verdicts import Verdict
from asmtune.predict.features.registry import ConfigReading
from asmtune.predict.score.advice import Suggestion, nearest, suggestions
from asmtune.predict.score.roofline import predict, terms_us
from asmtune.report.code.model import CodeView
from asmtune.report.explain.comparison import Comparison, Pair
from asmtune.report.documents import verdict_json

Code = CodeView | Failure


@dataclass(frozen=True)
class Explained:
    """What `asmtune explain` says.

    Attributes:
        report: of all configs that were judged.
        verdict: of the config that is explained.
        target: the machine.
        suggestions: two things to try against its bottleneck; none where it has none.
        comparison: with another config; None where there is none.
        reading: its parsed assembly; None where it did not compile.
        code: its code, or why it cannot be shown; None where it did not compile.
        other_code: of the other config, likewise.
        guesses: what its predicted time and its counts rest on that could not be evaluated.
        searched: whether the whole space was judged, so that what it does not hold can be told.
    """

    report: PruneReport
    verdict: Verdict
    target: Target
    suggestions: tuple[Suggestion, ...] = ()
    comparison: Comparison | None = None
    reading: ConfigReading | None = None
    code: Code | None = None
    other_code: Code | None = None
    guesses: tuple[str, ...] = ()
    searched: bool = True

    @property
    def runs(self) -> bool:
        """Whether it can run, kept or not."""
        return self.verdict.dropped_at not in ("rules", "compile")

    @property
    def instead(self) -> Verdict | None:
        """Of a config that cannot run, the one that can with fewest changes."""
        if self.runs:
            return None
        return nearest(self.verdict.config, (v for v in self.report.verdicts if v.rank is not None))

    @property
    def last_kept(self) -> Verdict | None:
        """Of a config that fell by its rank, the last whose rank was kept."""
        if self.verdict.dropped_at != "score" or self.report.selection is None:
            return None
        ranks = self.report.selection.ranks
        return next((v for v in self.report.verdicts if v.rank == ranks), None)

    @property
    def bottleneck_us(self) -> float | None:
        """What its bottleneck alone would take; None where nothing was predicted."""
        if self.verdict.features is None or self.verdict.bottleneck is None:
            return None
        return predict(self.verdict.features, self.target).parts_us[self.verdict.bottleneck]


def try_out(report: PruneReport, verdict: Verdict) -> tuple[Suggestion, ...]:
    """Two things to try, of a config that runs; configs are looked for among the report's."""
    if verdict.dropped_at in ("rules", "compile"):
        return ()
    return suggestions(verdict, report.verdicts)


def explained_json(explained: Explained, *, code: bool) -> str:
    """One config as JSON: the verdict's document, with what is explained of it.

    Args:
        explained: the config.
        code: whether to add the lines of its code.
    """
    features = explained.verdict.features
    more: dict[str, Any] = {
        "terms_us": None if features is None else terms_us(features, explained.target),
        "guesses": list(explained.guesses),
        "suggestions": [_suggestion(each) for each in explained.suggestions],
        "instead": _config(explained.instead),
        "comparison": _comparison(explained.comparison),
    }
    if code:
        more |= {"code": to_json(explained.code), "other_code": to_json(explained.other_code)}
    return verdict_json(explained.report, explained.verdict, more)


def _suggestion(suggestion: Suggestion) -> dict[str, Any]:
    return {"words": suggestion.words, "config": _config(suggestion.verdict)}


def _comparison(comparison: Comparison | None) -> dict[str, Any] | None:
    if comparison is None:
        return None
    own, other = comparison.measured_us
    return {
        "other_is": comparison.other_is,
        "other": to_json(comparison.other),
        "terms_us": [_pair(term) for term in comparison.terms],
        "decisions": [
            {"term": decision.term.name, "causes": [_pair(cause) for cause in decision.causes]}
            for decision in comparison.decisions
        ],
        "resources": [_pair(pair) for pair in comparison.resources],
        "measured_us": {"own": own, "other": other},
    }


def _pair(pair: Pair) -> dict[str, Any]:
    return {"name": pair.name, "unit": pair.unit, "own": pair.own, "other": pair.other}


def _config(verdict: Verdict | None) -> dict[str, Any] | None:
    if verdict is None:
        return None
    config: Config = verdict.config
    return {
        "config": to_json(config),
        "rank": verdict.rank,
        "predicted_us": verdict.predicted_us,
    }
