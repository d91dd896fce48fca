"""A launch whose key is not in memory, and the config that it gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from asmtune.core.config import Config
from asmtune.core.problem import Problem
from asmtune.core.records.tuned import TuneKey, TuneRecord
from asmtune.core.space.space import Space

How = Literal["tuned", "known", "predicted", "nearest", "heuristic", "busy"]


@dataclass(frozen=True)
class Miss:
    """A launch whose key is not in memory.

    Attributes:
        problem: the launch; its `shape` holds every number among the arguments.
        key: what its config is kept by.
        space: the configs, already pruned by the user's function.
    """

    problem: Problem
    key: TuneKey
    space: Space


@dataclass(frozen=True)
class Choice:
    """The config to launch.

    Attributes:
        config: of the space where it is of it, with its `pre_hook`.
        final: whether it stands for the rest of the process; else the next launch asks again.
        how: "tuned" now, "known" to a store, "predicted" by the model, of the "nearest" stored
            neighbour, the "heuristic", or a pick while another process is "busy" tuning it.
        record: with every timing, of what was tuned now; of what was known, only where it
            had to be read whole.
        compiled, timed: configs, where it was tuned now.
        seconds: that finding it took.
    """

    config: Config
    final: bool
    how: How
    record: TuneRecord | None = None
    compiled: int = 0
    timed: int = 0
    seconds: float = 0.0
