"""Judging configs: rules that drop what cannot run, scorers that rank the rest."""

from asmtune.score.base import (
    Candidate,
    Scorer,
    make_scorer,
    notes_of,
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
    "make_scorer",
    "notes_of",
    "scorer_names",
    "without_kernel",
]
