"""Which bench times a problem."""

from __future__ import annotations

from collections.abc import Sequence

from asmtune.base.errors import InputError
from asmtune.measure.bench.base import Bench, BenchSetup
from asmtune.measure.bench.child_bench import ChildBench
from asmtune.measure.bench.dedup import DedupBench
from asmtune.measure.bench.local import LocalBench
from asmtune.measure.bench.team import Team


def open_bench(
    setup: BenchSetup, *, isolate: bool = False, devices: Sequence[int] | None = None
) -> Bench:
    """A bench for a problem; configs of one binary are timed once.

    Args:
        setup: what is timed, and how.
        isolate: time in a process of its own, so that a config that faults or hangs
            costs itself alone.
        devices: GPUs to time on, by their index among those that this process sees; each has
            a process, so that they are isolated as well. By default the current one.

    Raises:
        InputError: the devices are not of one model, or something cannot be sent to a process.
        MeasureError: there is no GPU, or it cannot be used.
    """
    if devices is not None and (not devices or min(devices) < 0 or len({*devices}) < len(devices)):
        raise InputError(f"devices={list(devices)}: expected different indices of GPUs, from 0")
    bench: Bench
    if devices is not None and len(devices) > 1:
        bench = Team(setup, devices)
    elif isolate or devices:
        bench = ChildBench(setup, None if devices is None else devices[0])
    else:
        bench = LocalBench(setup)
    return DedupBench(setup.lowering.problem, bench)
