"""Timing by a function of the user's: `do_bench(kernel_call, quantiles=...)`, as Triton's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from asmtune.base.errors import InputError
from asmtune.core.config import Config
from asmtune.core.failures import guarded
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement, Outcome
from asmtune.measure.bench.gpu import BenchGpu, DeviceLossCheck
from asmtune.measure.timing.clock import Subject
from asmtune.measure.timing.switch_interval import short_switch_interval

DoBench = Callable[..., Any]
"""Called as `do_bench(kernel_call, quantiles=(0.5, 0.2, 0.8))`; gives milliseconds: the median,
p20 and p80, or the median alone."""

QUANTILES: Final = (0.5, 0.2, 0.8)
_US: Final = 1e3
_FORM: Final = "expected milliseconds above 0: [median, p20, p80] or one number"


class UserTimer:
    """Times subjects one after another by the user's function; in place of a race.

    What it is given to call does all that is done around a launch: puts back what the kernel
    wrote, hooks, launch, hooks. How often, and what of it counts, is the function's business.

    Args:
        do_bench: see `DoBench`.
        machine: the device.
        announce: told each config before it runs.
    """

    def __init__(
        self,
        do_bench: DoBench,
        machine: BenchGpu,
        announce: Callable[[Config], None] | None = None,
    ) -> None:
        self._do_bench = do_bench
        self._machine = machine
        self._announce = announce

    def trial(self, subjects: Sequence[Subject]) -> list[Outcome]:
        """A timing or a failure of each, in their order.

        Raises:
            InputError: the function does not launch anything, or gives no times.
            DeviceLostError: a subject broke the context.
        """
        return [(subject.config, self._timed(subject)) for subject in subjects]

    def final(self, subjects: Sequence[Subject]) -> list[Outcome]:
        """The same again.

        Raises:
            InputError: as `trial`.
            DeviceLostError: as `trial`.
        """
        return self.trial(subjects)

    def _timed(self, subject: Subject) -> Measurement | Failure:
        if self._announce is not None:
            self._announce(subject.config)
        calls = 0

        def kernel_call() -> None:
            nonlocal calls
            calls += 1
            subject.prepare()
            subject.run()
            subject.finish()

        with short_switch_interval():
            found = guarded("launch", lambda: self._do_bench(kernel_call, quantiles=QUANTILES))
        if isinstance(found, Failure):
            DeviceLossCheck(self._machine, [subject.config]).confirm(found.detail)
            if not calls:
                said = found.detail.strip().splitlines()[0]
                raise InputError(f"do_bench failed before it launched anything: {said}")
            return found
        times = _times(found)
        if any(math.isinf(time) for time in times):
            return Failure("launch", "untimed", f"do_bench gave {found}")
        median_us, p20_us, p80_us = (time * _US for time in (times * 3)[:3])
        samples = tuple(time * _US for time in times)
        return Measurement(subject.config, median_us, p20_us, p80_us, samples)


def _times(found: Any) -> tuple[float, ...]:
    """What the function gave as numbers: three, or one.

    Raises:
        InputError: it is neither.
    """
    listed = list(found) if isinstance(found, list | tuple) else [found]
    # Numbers of NumPy and PyTorch are as good.
    times = guarded("input", lambda: tuple(float(time) for time in listed))
    if isinstance(times, Failure) or len(times) not in (1, len(QUANTILES)):
        raise InputError(f"do_bench gave {found!r:.60}: {_FORM}")
    if not all(time > 0 for time in times):
        raise InputError(f"do_bench gave {found!r:.60}: {_FORM}")
    return times
