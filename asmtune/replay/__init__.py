"""Replay: the funnel over recorded timings, to know its regret without a GPU."""

from asmtune.replay.flow import replay
from asmtune.replay.judging import Judged, judged, judged_moments
from asmtune.replay.plans import Plan, PlanResult
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
from asmtune.replay.strategies import replay_strategies
from asmtune.replay.traces import NOTE, Recording, recordings

__all__ = [
    "CUTS",
    "NOTE",
    "Agreement",
    "Judged",
    "Plan",
    "PlanResult",
    "Recording",
    "ReplayReport",
    "ScorerResult",
    "TaskResult",
    "cut_sizes",
    "geometric_mean",
    "judged",
    "judged_moments",
    "kept_of",
    "recordings",
    "replay",
    "replay_strategies",
]
