"""Timing on a GPU: interleaved, L2 cold, with its spread."""

from asmtune.measure.device import device_name, driver_version
from asmtune.measure.preserve import preserved
from asmtune.measure.statistics import summarise
from asmtune.measure.timer import Subject, TimingPolicy, time_interleaved

__all__ = [
    "Subject",
    "TimingPolicy",
    "device_name",
    "driver_version",
    "preserved",
    "summarise",
    "time_interleaved",
]
