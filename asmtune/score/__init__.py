"""Judging configs: rules that drop what cannot run, scorers that rank the rest."""

from asmtune.score.base import Candidate, Scorer, make_scorer, scorer_names
from asmtune.score.rules import RULES, Rule, broken_rules

__all__ = [
    "RULES",
    "Candidate",
    "Rule",
    "Scorer",
    "broken_rules",
    "make_scorer",
    "scorer_names",
]
