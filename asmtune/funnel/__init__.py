"""From a space to what is worth timing, and why."""

from asmtune.funnel.caps import CapSource, caps_for
from asmtune.funnel.flow import Funnel
from asmtune.funnel.front import Front, Moment, Outcomes
from asmtune.funnel.judge import Judge
from asmtune.funnel.notes import A_GUESS, DEFAULT_FAILS
from asmtune.funnel.persistence import Detection
from asmtune.funnel.picking import bytes_us, first_pick, small_pick
from asmtune.funnel.progress import NoProgress, Progress
from asmtune.funnel.sketching import check_compile, default_budget

__all__ = [
    "A_GUESS",
    "DEFAULT_FAILS",
    "CapSource",
    "Detection",
    "Front",
    "Funnel",
    "Judge",
    "Moment",
    "NoProgress",
    "Outcomes",
    "Progress",
    "bytes_us",
    "caps_for",
    "check_compile",
    "default_budget",
    "first_pick",
    "small_pick",
]
