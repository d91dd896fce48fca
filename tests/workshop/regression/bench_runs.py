"""Bench runs: written down, and of simulated noise."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from asmtune.core.config import Config
from asmtune.workshop.regression.run import (
    BenchRun,
    BenchSubject,
    Environment,
    Process,
    TimedSubject,
    timing_words,
)

HERE = Environment(
    "NVIDIA H200", "0123456789ab", "580.1", {"torch": "2.13.0", "triton": "3.6.0", "cuda": "13.0"}
)
CONFIG = Config({"BLOCK": 1024}, num_warps=4)


def subject(name: str) -> BenchSubject:
    """A kernel of that name on one shape."""
    return BenchSubject(name, {"n": 4096}, "fp16")


def timed(name: str, samples: Sequence[Sequence[float]]) -> TimedSubject:
    """A row of samples by process."""
    return TimedSubject(subject(name), CONFIG, "store", "", tuple(map(tuple, samples)))


def run_of(*rows: TimedSubject, label: str = "", environment: Environment = HERE) -> BenchRun:
    """A run of rows."""
    processes = max(len(row.samples) for row in rows)
    return BenchRun(
        date="2026-01-02T03:04:05+00:00",
        label=label,
        environment=environment,
        timing=timing_words(),
        processes=tuple(Process("2026-01-02T03:04:05+00:00", {}) for _ in range(processes)),
        rows=rows,
        missed=(),
    )


def simulated(seed: int, processes: int = 8, **medians_us: float) -> BenchRun:
    """Rows of known times: processes differ by 0.7%, samples of one by 1.5%, some by far more."""
    source = random.Random(seed)

    def samples(us: float) -> list[float]:
        own = us * source.gauss(1, 0.007)
        return [
            own * source.gauss(1, 0.015) * (5 if source.random() < 0.02 else 1) for _ in range(20)
        ]

    rows = (timed(k, [samples(us) for _ in range(processes)]) for k, us in medians_us.items())
    return run_of(*rows, label=str(seed))


def rows_of(count: int) -> dict[str, float]:
    """Medians in microseconds of so many kernels."""
    return {f"kernel{place}": 3.0 * 2**place for place in range(count)}


def part_of(run: BenchRun, places: Sequence[int]) -> BenchRun:
    """A run of some processes of another."""
    rows = tuple(
        replace(row, samples=tuple(row.samples[place] for place in places)) for row in run.rows
    )
    return replace(run, rows=rows, processes=tuple(run.processes[place] for place in places))


def scaled(run: BenchRun, factor: float, among: Callable[[BenchSubject], bool]) -> BenchRun:
    """A run in which some subjects took that much longer, every sample of them."""
    rows = (
        replace(r, samples=tuple(tuple(s * factor for s in one) for one in r.samples))
        if among(r.subject)
        else r
        for r in run.rows
    )
    return replace(run, rows=tuple(rows))
