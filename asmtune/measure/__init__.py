"""Timing on a GPU: interleaved, L2 cold, with its spread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asmtune.lazy import loader

if TYPE_CHECKING:
    from asmtune.measure.clock import Clock as Clock
    from asmtune.measure.clock import GpuClock as GpuClock
    from asmtune.measure.clock import Subject as Subject
    from asmtune.measure.device import device_name as device_name
    from asmtune.measure.device import driver_version as driver_version
    from asmtune.measure.effects import Effects as Effects
    from asmtune.measure.energy import energy_mj as energy_mj
    from asmtune.measure.nvml import read_clocks as read_clocks
    from asmtune.measure.policy import TimingPolicy as TimingPolicy
    from asmtune.measure.preserve import preserved as preserved
    from asmtune.measure.race import Race as Race
    from asmtune.measure.race import winner as winner
    from asmtune.measure.rehearsal import CheckOptions as CheckOptions
    from asmtune.measure.rehearsal import Rehearsal as Rehearsal
    from asmtune.measure.statistics import prepare as prepare
    from asmtune.measure.statistics import summarise as summarise

__all__ = [
    "CheckOptions",
    "Clock",
    "Effects",
    "GpuClock",
    "Race",
    "Rehearsal",
    "Subject",
    "TimingPolicy",
    "device_name",
    "driver_version",
    "energy_mj",
    "prepare",
    "preserved",
    "read_clocks",
    "summarise",
    "winner",
]

_HOMES: Final = {
    "CheckOptions": "rehearsal",
    "Clock": "clock",
    "Effects": "effects",
    "GpuClock": "clock",
    "Race": "race",
    "Rehearsal": "rehearsal",
    "Subject": "clock",
    "TimingPolicy": "policy",
    "device_name": "device",
    "driver_version": "device",
    "energy_mj": "energy",
    "prepare": "statistics",
    "preserved": "preserve",
    "read_clocks": "nvml",
    "summarise": "statistics",
    "winner": "race",
}

__getattr__ = loader(__name__, _HOMES)
