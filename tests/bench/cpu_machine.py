"""A machine that launches on the host: everything of a bench but the GPU."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from asmtune.compile.load import Binary, LoadedLaunch
from asmtune.core.failures import guarded
from asmtune.core.records.artifacts import Failure
from asmtune.measure.timing.clock import Subject
from asmtune.measure.timing.policy import TimingPolicy


class CpuMachine:
    """Does what a launch's MODE says, to the arguments' memory and to this process.

    Attributes:
        loaded: how many launches were made.
        launched: modes in the order launched.
        lost: whether a launch broke the device; everything then fails.
    """

    def __init__(self, name: str = "a CPU") -> None:
        self.name = name
        self.loaded = 0
        self.launched: list[str] = []
        self.lost = False

    def clock(self, policy: TimingPolicy) -> CpuClock:  # noqa: ARG002 - the protocol's
        """Tell the time that a config claims to take."""
        return CpuClock()

    def launch(
        self, binary: Binary, values: Mapping[str, Any], pre_hook: Callable[..., Any] | None
    ) -> LoadedLaunch:
        """A launch of what the values say; the binary must be theirs."""
        self.loaded += 1
        assert binary.cubin.startswith(str(values["MODE"]).encode())

        def run() -> None:
            self.synchronize()
            self.launched.append(values["MODE"])
            self._act(values)

        def prepare() -> None:
            if pre_hook is not None:
                pre_hook(values)

        return LoadedLaunch(prepare, run)

    def synchronize(self) -> None:
        """Raise if the device was lost."""
        if self.lost:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def _act(self, values: Mapping[str, Any]) -> None:
        mode, x, y = values["MODE"], values["x_ptr"], values["y_ptr"]
        if mode == "hang" or (mode == "hang later" and self.launched.count(mode) > 3):
            time.sleep(3600)
        if mode == "segfault" or (mode == "segfault later" and self.launched.count(mode) > 3):
            os.kill(os.getpid(), signal.SIGSEGV)
        if mode == "say and exit":
            os.write(2, b"first words\nout of patience\n")
            os._exit(3)
        if mode == "fault" or (mode == "fault later" and self.launched.count(mode) > 3):
            self.lost = True
            self.synchronize()
        if mode == "memory":
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 TiB")
        if mode == "print":
            os.write(1, b"from the kernel, on stdout\n")
            os.write(2, b"from the kernel, on stderr\n")
        if mode == "in place":
            x *= 2
            return
        if mode.startswith("parts"):
            count = int(mode.split()[1])
            y[:count] = x.reshape(count, -1).sum(1)
            return
        if mode != "nothing":
            y.copy_(x * (3 if mode == "wrong" else 2))


class CpuClock:
    """Runs each subject, and takes the time that its config tells for the time it took."""

    def warm_up(self, subject: Subject) -> Failure | None:
        """Run a subject once."""

        def once() -> None:
            subject.prepare()
            subject.run()
            subject.finish()

        outcome = guarded("launch", once)
        return outcome if isinstance(outcome, Failure) else None

    def round(self, subjects: Sequence[Subject]) -> list[float]:
        """Run each once."""
        for subject in subjects:
            subject.prepare()
            subject.run()
            subject.finish()
        return [float(subject.config.kwargs["US"]) for subject in subjects]
