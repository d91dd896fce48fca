"""Energy of a launch, by the GPU's own meter."""

from __future__ import annotations

import time
from typing import Final

from asmtune.measure.timing.clock import Subject
from asmtune.measure.timing.nvml import Nvml

_BURST_S: Final = 0.005
_PATIENCE_S: Final = 2.0


def energy_mj(subject: Subject, seconds: float = 0.3) -> float | None:
    """Millijoules of one launch, averaged over a loop of at least `seconds`.

    What NVML's meter counts is the whole board: what the GPU draws when idle, its
    memory, and what `prepare` and `finish` do around each launch are in the figure, and nothing is
    taken off. Launches follow each other with warm caches and hot clocks, so that it
    compares with other figures of this function alone.

    The meter moves some tens of times a second. The loop begins and ends with
    such a tick, so that no part of one is lost.

    Args:
        subject: was warmed up before; whatever its launch raises passes.
        seconds: of the loop; a tick more is added.

    Returns:
        None without NVML, or where the meter is missing or stands still.
    """
    nvml = Nvml.current()
    if nvml is None or nvml.read("TotalEnergyConsumption") is None:
        return None
    return _Meter(subject, nvml).per_launch(seconds)


class _Meter:
    """Launches in bursts, with the meter read in between."""

    def __init__(self, subject: Subject, nvml: Nvml) -> None:
        self._subject = subject
        self._nvml = nvml
        self._launches = 1

    def per_launch(self, seconds: float) -> float | None:
        """Millijoules a launch, from a tick of the meter to one at least `seconds` later."""
        self._fit_burst()
        first = self._tick()
        if first is None:
            return None
        began, start_mj = time.monotonic(), first[0]
        launches, reading_mj = 0, start_mj
        while launches == 0 or time.monotonic() - began < seconds:
            ticked = self._tick()
            if ticked is None:
                return None
            reading_mj, more = ticked
            launches += more
        return (reading_mj - start_mj) / launches

    def _tick(self) -> tuple[int, int] | None:
        """Launches until the meter moves: what it says then, and how many they were."""
        before, deadline = self._reading(), time.monotonic() + _PATIENCE_S
        launches = 0
        while time.monotonic() < deadline:
            self._burst()
            launches += self._launches
            now = self._reading()
            if now is None or before is None:
                return None
            if now != before:
                return now, launches
        return None

    def _reading(self) -> int | None:
        value = self._nvml.read("TotalEnergyConsumption")
        return None if value is None else int(value)

    def _fit_burst(self) -> None:
        """As many launches as take about five milliseconds."""
        self._burst()
        began = time.monotonic()
        self._burst()
        taken = max(time.monotonic() - began, 1e-6)
        self._launches = max(1, int(_BURST_S / taken))

    def _burst(self) -> None:
        import torch

        for _ in range(self._launches):
            self._subject.prepare()
            self._subject.run()
            self._subject.finish()
        torch.cuda.synchronize()
