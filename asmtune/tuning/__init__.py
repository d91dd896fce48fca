"""Tuning: the funnel, the search and the clock, then a record."""

from asmtune.tuning.api import gpu_of, tune
from asmtune.tuning.identity import key_of, provenance, space_digest
from asmtune.tuning.objective import Objective
from asmtune.tuning.options import Choices, TuneJob, TuneOptions, TuneResult
from asmtune.tuning.presets import EFFORTS, Effort, effort_of
from asmtune.tuning.session import Session
from asmtune.tuning.workshop import Workshop

__all__ = [
    "EFFORTS",
    "Choices",
    "Effort",
    "Objective",
    "Session",
    "TuneJob",
    "TuneOptions",
    "TuneResult",
    "Workshop",
    "effort_of",
    "gpu_of",
    "key_of",
    "provenance",
    "space_digest",
    "tune",
]
