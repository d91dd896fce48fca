"""Judging configs: rules that drop what cannot run, scorers that rank the rest."""

from asmtune.score.base import (
    Candidate,
    Scorer,
    for_dtypes,
    make_scorer,
    moments_of,
    notes_of,
    ranked_by,
    scorer_names,
    without_kernel,
)
from asmtune.score.rules import RULES, Rule, broken_rules

__all__ = [
    "RULES",
    "Candidate",
    "Rule",
    "Scorer",
    "broken_rules",
    "for_dtypes",
    "make_scorer",
    "moments_of",
    "notes_of",
    "ranked_by",
    "scorer_names",
    "without_kernel",
]
