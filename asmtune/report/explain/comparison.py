"""One config against another: where the difference of their predicted times comes from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from asmtune.core.hardware.model import Target
from asmtune.core.records.features import Features
from asmtune.core.records.verdicts import Verdict
from asmtune.predict.score.roofline import busiest_unit, terms_us
from asmtune.report.explain.quantities import CAUSES, QUANTITIES, RESOURCES, TERMS

TELLING: Final = 0.01
"""Of the slower one's predicted time: terms that differ by less decide nothing."""

ALIKE: Final = 0.005
"""Features whose values differ by less, of the larger, are told as equal."""


@dataclass(frozen=True)
class Pair:
    """A number of both configs.

    Attributes:
        name: of a feature, or of a term of the predicted time.
        unit: as the registry of features has it; "1" for counts and ratios.
        meaning: in words.
        own: of the config that is explained.
        other: of the one it is held against.
    """

    name: str
    unit: str
    meaning: str
    own: float
    other: float

    @property
    def difference(self) -> float:
        """Own less the other's."""
        return self.own - self.other

    @property
    def differs(self) -> bool:
        """Whether they are apart by more than `ALIKE`."""
        return abs(self.difference) > ALIKE * max(abs(self.own), abs(self.other))


@dataclass(frozen=True)
class TermChange:
    """One term of the predicted time, with the numbers that make it.

    Attributes:
        term: in microseconds; of both busiest units together, where they are two.
        causes: what of it differs.
    """

    term: Pair
    causes: tuple[Pair, ...]


@dataclass(frozen=True)
class Comparison:
    """One config held against another, both compiled.

    Attributes:
        own: the config that is explained.
        other: the one it is held against.
        other_is: what the other is: "the winner by roofline", "the stored winner".
        terms: of the predicted times, the largest difference first; they sum to them.
        decisions: those terms that decide, with what makes them.
        resources: features of the resources, the grid and the work that differ.
        measured_us: what a store has of both, in microseconds; None where it was not timed.
    """

    own: Verdict
    other: Verdict
    other_is: str
    terms: tuple[Pair, ...] = ()
    decisions: tuple[TermChange, ...] = ()
    resources: tuple[Pair, ...] = ()
    measured_us: tuple[float | None, float | None] = (None, None)


def compared(own: Verdict, other: Verdict, other_is: str, target: Target) -> Comparison:
    """Holds two configs of one report against each other.

    Where one of them has no features there is nothing to compare but the verdicts.

    Args:
        own: the config that is explained.
        other: the one it is held against.
        other_is: what the other is, in words.
        target: the machine that both were judged for.
    """
    if own.features is None or other.features is None:
        return Comparison(own, other, other_is)
    terms = _terms(own.features, other.features, target)
    slower = max(own.predicted_us or 0.0, other.predicted_us or 0.0)
    busiest = [busiest_unit(features, target) for features in (own.features, other.features)]
    parts = _parts(terms, busiest)
    telling = [(part, names) for part, names in parts if abs(part.difference) >= TELLING * slower]
    return Comparison(
        own,
        other,
        other_is,
        terms=terms,
        decisions=tuple(
            TermChange(part, _differing(_causes(names), own.features, other.features))
            for part, names in telling
        ),
        resources=_differing(RESOURCES, own.features, other.features),
    )


def _terms(own: Features, other: Features, target: Target) -> tuple[Pair, ...]:
    mine, its = terms_us(own, target), terms_us(other, target)
    pairs = [Pair(name, "us", TERMS[name], mine[name], its[name]) for name in mine]
    return tuple(sorted(pairs, key=lambda pair: -abs(pair.difference)))


def _parts(terms: Sequence[Pair], busiest: Sequence[str]) -> list[tuple[Pair, tuple[str, ...]]]:
    """Terms, each with its name; those of both configs' busiest units as one, if they differ.

    Of the busiest unit the whole time counts, of others a share: where two configs have
    different ones, either term alone would tell of the share and not of the work.
    """
    mine, its = busiest
    if mine == its:
        return [(term, (term.name,)) for term in terms]
    both = [term for term in terms if term.name in busiest]
    meaning = f"the busiest unit, {TERMS[mine]} against {TERMS[its]}"
    sums = sum(term.own for term in both), sum(term.other for term in both)
    parts: list[tuple[Pair, tuple[str, ...]]]
    parts = [(term, (term.name,)) for term in terms if term not in both]
    parts.append((Pair("busiest", "us", meaning, *sums), (mine, its)))
    return sorted(parts, key=lambda part: -abs(part[0].difference))


def _causes(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(cause for name in names for cause in CAUSES[name]))


def _differing(names: tuple[str, ...], own: Features, other: Features) -> tuple[Pair, ...]:
    pairs = (_pair(name, own, other) for name in names)
    return tuple(pair for pair in pairs if pair.differs)


def _pair(name: str, own: Features, other: Features) -> Pair:
    quantity = QUANTITIES[name]
    return Pair(name, quantity.unit, quantity.words, quantity.of(own), quantity.of(other))
