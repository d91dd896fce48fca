"""What `asmtune tune` was asked for, as the library takes it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from asmtune.base.errors import InputError

if TYPE_CHECKING:
    from asmtune.tuning.options import Effort, TuneOptions


@dataclass(frozen=True)
class TuneRequest:
    """The options of the same names, as they were given."""

    effort: str = "balanced"
    strategy: str | None = None
    objective: str = "time"
    devices: str | None = None
    seconds: float | None = None
    compiles: int | None = None
    timings: int | None = None

    def options(self, *, isolate: bool, seed: int, force: bool, tiles: bool) -> TuneOptions:
        """All of it, and what needs no reading.

        Raises:
            InputError: an effort, strategy, objective or GPU is unknown, or a number of seconds
                is none above 0.
        """
        from asmtune.tuning.options import TuneOptions
        from asmtune.tuning.search.strategies import make_strategy

        if self.seconds is not None and not 0 < self.seconds < math.inf:
            raise InputError(f"--seconds: {self.seconds:g} is no number above 0")
        options = TuneOptions.of(
            {
                "effort": self.effort,
                "objective": self.objective,
                "isolate": isolate,
                "seed": seed,
                "force": force,
                "tiles": tiles,
            }
        )
        effort = self._limited(options.effort)
        make_strategy(effort.strategy, seed)
        return replace(options, effort=effort, devices=self._devices())

    def _limited(self, effort: Effort) -> Effort:
        limits = effort.limits
        limits = replace(
            limits,
            seconds=limits.seconds if self.seconds is None else self.seconds,
            compiles=limits.compiles if self.compiles is None else self.compiles,
            timings=limits.timings if self.timings is None else self.timings,
        )
        return replace(effort, limits=limits, strategy=self.strategy or effort.strategy)

    def _devices(self) -> tuple[int, ...] | None:
        """Indices of GPUs; None for the current one."""
        if self.devices is None:
            return None
        import torch

        count = torch.cuda.device_count()
        parts = [part.strip() for part in self.devices.split(",")]
        if self.devices.strip() == "all":
            parts = [str(index) for index in range(count)]
        if not all(part.isdecimal() for part in parts) or len(set(parts)) != len(parts):
            raise InputError(
                f'--devices: {self.devices!r} is neither "all" nor indices such as 0,1'
            )
        indices = tuple(map(int, parts))
        missing = [index for index in indices if index >= count]
        if missing and count:
            raise InputError(f"--devices: no GPU {missing[0]}: there are {count}, from 0 on")
        return indices or None
