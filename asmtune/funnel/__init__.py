"""From a space to what is worth timing, and why."""

from asmtune.funnel.flow import DEFAULT_FAILS, Funnel
from asmtune.funnel.front import Front, Moment
from asmtune.funnel.judge import Judge
from asmtune.funnel.progress import NoProgress, Progress
from asmtune.funnel.sketching import check_compile

__all__ = [
    "DEFAULT_FAILS",
    "Front",
    "Funnel",
    "Judge",
    "Moment",
    "NoProgress",
    "Progress",
    "check_compile",
]
