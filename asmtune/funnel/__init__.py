"""From a space to what is worth timing, and why."""

from asmtune.funnel.flow import Funnel
from asmtune.funnel.judge import Judge
from asmtune.funnel.progress import NoProgress, Progress

__all__ = ["Funnel", "Judge", "NoProgress", "Progress"]
