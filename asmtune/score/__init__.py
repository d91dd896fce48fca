"""Judging configs: rules that drop what cannot run, scorers that rank the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asmtune.lazy import loader

if TYPE_CHECKING:
    from asmtune.score.base import Candidate as Candidate
    from asmtune.score.base import Scorer as Scorer
    from asmtune.score.base import for_dtypes as for_dtypes
    from asmtune.score.base import moments_of as moments_of
    from asmtune.score.base import notes_of as notes_of
    from asmtune.score.base import ranked_by as ranked_by
    from asmtune.score.base import without_kernel as without_kernel
    from asmtune.score.rules import RULES as RULES
    from asmtune.score.rules import Rule as Rule
    from asmtune.score.rules import broken_rules as broken_rules
    from asmtune.score.scorers import make_scorer as make_scorer
    from asmtune.score.scorers import scorer_names as scorer_names

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

_HOMES: Final = {
    "Candidate": "base",
    "RULES": "rules",
    "Rule": "rules",
    "Scorer": "base",
    "broken_rules": "rules",
    "for_dtypes": "base",
    "make_scorer": "scorers",
    "moments_of": "base",
    "notes_of": "base",
    "ranked_by": "base",
    "scorer_names": "scorers",
    "without_kernel": "base",
}

__getattr__ = loader(__name__, _HOMES)
