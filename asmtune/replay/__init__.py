"""Replay: the funnel over recorded timings, to know its regret without a GPU."""

from asmtune.replay.flow import replay
from asmtune.replay.judging import Judged, judged, judged_moments
from asmtune.replay.results import (
    CUTS,
    Agreement,
    ReplayReport,
    ScorerResult,
    TaskResult,
    cut_sizes,
    geometric_mean,
    kept_of,
)

__all__ = [
    "CUTS",
    "Agreement",
    "Judged",
    "ReplayReport",
    "ScorerResult",
    "TaskResult",
    "cut_sizes",
    "geometric_mean",
    "judged",
    "judged_moments",
    "kept_of",
    "replay",
]
