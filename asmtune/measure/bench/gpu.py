"""The GPU as a bench sees it: launches, and a lost device."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from asmtune.base.errors import InputError, MeasureError
from asmtune.compile.load import Binary, LoadedLaunch, launch_of
from asmtune.core.config import Config
from asmtune.core.failures import guarded
from asmtune.core.records.artifacts import Failure
from asmtune.measure.timing.clock import Clock, GpuClock, Subject
from asmtune.measure.timing.nvml import device_name
from asmtune.measure.timing.policy import TimingPolicy


class BenchGpu:
    """Runs and times launches on PyTorch's current CUDA device.

    Attributes:
        name: the GPU's name as its driver gives it.
        place: PyTorch's type of the device.

    Raises:
        MeasureError: PyTorch finds no CUDA device.
    """

    place = "cuda"

    def __init__(self) -> None:
        import torch

        if not torch.cuda.is_available():
            raise MeasureError("timing needs a CUDA GPU; PyTorch finds none on this machine")
        self.name = device_name()

    def clock(self, policy: TimingPolicy) -> Clock:
        """Return a clock that takes samples on it."""
        return GpuClock(policy)

    def launch(
        self, binary: Binary, values: Mapping[str, Any], pre_hook: Callable[..., Any] | None
    ) -> LoadedLaunch:
        """Make a launch of a binary; the GPU loads it at its first launch."""
        return launch_of(binary, values, pre_hook)

    def synchronize(self) -> None:
        """Wait for all launches and raise their errors, every time if the context is broken."""
        import torch

        torch.cuda.synchronize()


class DeviceLostError(MeasureError):
    """Says that a launch broke this process's CUDA context: every later call would fail.

    Attributes:
        config: the config that did it, or one of those that were timed together.
        detail: the driver's message.
    """

    def __init__(self, configs: Sequence[Config], detail: str) -> None:
        self.config = configs[0]
        self.detail = detail
        first = detail.strip().splitlines()[0] if detail.strip() else "no message"
        number = len(configs)
        who = str(self.config) if number == 1 else f"one of {number} configs timed together"
        super().__init__(
            f"{who} broke this process's CUDA context ({first}): nothing can run on this GPU "
            "here any more. Start again with isolate=True (--isolate), where it costs that "
            "config alone"
        )


def confirm_device(machine: BenchGpu, configs: Sequence[Config], detail: str) -> None:
    """Check after a failure of some configs that the device still works.

    Raises:
        DeviceLostError: it does not.
    """
    if isinstance(guarded("launch", machine.synchronize), Failure):
        raise DeviceLostError(configs, detail)


@dataclass(frozen=True)
class WatchedClock:
    """Wraps a clock: notices a lost device, and can announce each config before it runs.

    Attributes:
        clock, machine: the clock, and the device that it times on.
        announce: called with each config before it runs. With it, configs run one at a time, so
            that a config that hangs is known: 20-50 us more per sample, outside the intervals.
    """

    clock: Clock
    machine: BenchGpu
    announce: Callable[[Config], None] | None = None

    def warm_up(self, subject: Subject) -> Failure | None:
        """Load a subject and run it once; return why it cannot."""
        if self.announce is not None:
            self.announce(subject.config)
        failure = self.clock.warm_up(subject)
        if failure is not None:
            confirm_device(self.machine, [subject.config], failure.detail)
        return failure

    def round(self, subjects: Sequence[Subject]) -> list[float]:
        """Take one sample of each in microseconds, in this order."""
        if self.announce is None:
            return self._sampled(subjects)
        samples = []
        for subject in subjects:
            self.announce(subject.config)
            samples += self._sampled([subject])
        return samples

    def _sampled(self, subjects: Sequence[Subject]) -> list[float]:
        try:
            return self.clock.round(subjects)
        except Exception as error:
            configs = [subject.config for subject in subjects]
            confirm_device(self.machine, configs, f"{type(error).__name__}: {error}")
            raise


def environment(index: int | None) -> Mapping[str, str]:
    """Return this process's environment, changed so that a child sees one GPU only.

    Raises:
        InputError: this process sees fewer GPUs.
    """
    name, variables = "CUDA_VISIBLE_DEVICES", dict(os.environ)
    if index is not None:
        listed = variables.get(name)
        seen = None if listed is None else [entry.strip() for entry in listed.split(",") if entry]
        if seen is not None and index >= len(seen):
            raise InputError(f"GPU {index}: {name}={listed} shows {len(seen)}, counted from 0")
        variables[name] = str(index) if seen is None else seen[index]
    return variables
