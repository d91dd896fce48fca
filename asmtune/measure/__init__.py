"""Timing on a GPU: interleaved, L2 cold, with its spread."""

from asmtune.measure.clock import Clock, GpuClock, Subject
from asmtune.measure.device import device_name, driver_version
from asmtune.measure.effects import Effects
from asmtune.measure.energy import energy_mj
from asmtune.measure.nvml import read_clocks
from asmtune.measure.policy import TimingPolicy
from asmtune.measure.preserve import preserved
from asmtune.measure.race import Race, winner
from asmtune.measure.rehearsal import CheckOptions, Rehearsal
from asmtune.measure.statistics import prepare, summarise

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
