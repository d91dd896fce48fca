"""Persistent kernels: the tiles that their author chose are kept, unless he asks otherwise.

Few programs walk many tiles, or carry state from step to step: the tile then decides how the
work is shared out among the SMs, what a program keeps, and often what the host prepared, so that
by default only warps, stages, CTAs and registers are searched.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from asmtune.compile.lower import Lowering
from asmtune.core.config import OPTION_AXES, Config
from asmtune.core.hardware.model import Target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Failure
from asmtune.core.space.space import Space
from asmtune.ir.ttir.analysis import Kernel
from asmtune.predict.prune.judge import Judge


@dataclass(frozen=True)
class Searched:
    """What is searched of a space.

    Attributes:
        space: the user's, or with its tile axes held.
        notes: why, for the report.
    """

    space: Space
    notes: tuple[str, ...] = ()

    def configs(self, default: Config, shape: Mapping[str, Any]) -> list[Config]:
        """Each config once, the default first."""
        return list(dict.fromkeys((default, *self.space.configs(**shape))))


@dataclass(frozen=True)
class Detection:
    """How the default config of a kernel is looked at: its front end, no compile.

    Attributes:
        problem: the launch.
        target: the machine; says what a small grid is.
        timeout_s: seconds that the front end may take.
        kernels: TTIR already parsed; filled.
    """

    problem: Problem
    target: Target
    timeout_s: float
    kernels: MutableMapping[str, Kernel]

    def searched(self, space: Space, default: Config, *, tiles: bool) -> Searched:
        """The space to search: a persistent kernel's with its tile axes at the default's values.

        A list of configs is what its author wants searched, and is left whole.

        Args:
            space: the user's.
            default: its default config.
            tiles: whether to search the tile axes all the same.

        Raises:
            ProblemError: arguments and config do not fit the kernel.
        """
        reason = self.reason(default)
        if isinstance(reason, Failure):
            unknown = f"whether it is persistent is not known: its default config: {reason}"
            return Searched(space, (unknown,))
        if not reason:
            return Searched(space)
        told = f"persistent: {reason}"
        held = {
            name: (default.kwargs[name],)
            for name, values in space.axes.items()
            if name not in OPTION_AXES and len(values) > 1
        }
        if not held:
            return Searched(space, (told,))
        if space.is_listed:
            return Searched(space, (f"{told}; all configs listed are searched",))
        if tiles:
            return Searched(space, (f"{told}; its tile axes are searched, as asked",))
        kept = " ".join(f"{name}={value}" for name, (value,) in held.items())
        note = f"{told}; its tile axes are kept at {kept}; tiles=True (--tiles) searches them"
        return Searched(space.replace(**held), (note,))

    def reason(self, config: Config) -> str | Failure:
        """Why a config is persistent, "" where it is not, or why its front end refuses it."""
        lowering = Lowering(self.problem, self.target, self.timeout_s)
        request = lowering.request(config)
        if isinstance(request, Failure):
            return request
        judge = Judge(self.problem, self.target, self.kernels)
        return judge.work(config, request.ttir).persistent_reason
