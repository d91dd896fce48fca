"""Timing many candidates against each other with CUDA events.

Candidates are interleaved, one launch each a round, so that drifting clocks
meet all of them alike. Before each launch a buffer larger than L2 is written,
so that inputs come from DRAM; it also keeps the GPU busy while the host
prepares the launch, so that the host's cost stays out of the interval.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from asmtune.config import Config
from asmtune.guard import guarded
from asmtune.measure.statistics import summarise
from asmtune.records import Failure, Measurement


@dataclass(frozen=True, kw_only=True)
class TimingPolicy:
    """How often to time, and how cold.

    Attributes:
        coarse_rounds: launches of every candidate, after one that warms up.
        fine_rounds: more launches of those still in contention.
        contention: in contention is who is within this factor of the best
            coarse median.
        flush_bytes: written before each launch; 256 MiB is over four times
            the L2 of an H200.
    """

    coarse_rounds: int = 5
    fine_rounds: int = 20
    contention: float = 1.15
    flush_bytes: int = 256 << 20


@dataclass
class Subject:
    """A candidate under the clock.

    Attributes:
        config: what is timed.
        run: launches once.
        prepare: called before each launch, outside the interval.
        always: stays to the end however slow it is: the default config.
    """

    config: Config
    run: Callable[[], None]
    prepare: Callable[[], None]
    always: bool = False
    samples_us: list[float] = field(default_factory=list)


def time_interleaved(
    subjects: Sequence[Subject], policy: TimingPolicy
) -> tuple[list[Measurement], list[tuple[Config, Failure]]]:
    """Times every subject that launches.

    Returns:
        Measurements in the order of `subjects`, and the failures of those
        that do not launch.
    """
    import torch

    buffer = torch.empty(policy.flush_bytes, dtype=torch.int8, device="cuda")
    running, failures = [], []
    for subject in subjects:
        failure = _warm_up(subject)
        if failure is None:
            running.append(subject)
        else:
            failures.append((subject.config, failure))
    _rounds(running, policy.coarse_rounds, buffer)
    coarse = {id(s): summarise(s.config, s.samples_us).median_us for s in running}
    bound = min(coarse.values(), default=0.0) * policy.contention
    finalists = [s for s in running if s.always or coarse[id(s)] <= bound]
    _rounds(finalists, policy.fine_rounds, buffer)
    return [summarise(s.config, s.samples_us) for s in running], failures


def _warm_up(subject: Subject) -> Failure | None:
    """Loads the binary and runs it once; says why it cannot."""
    import torch

    def once() -> None:
        subject.prepare()
        subject.run()
        torch.cuda.synchronize()

    outcome = guarded("launch", once)
    return outcome if isinstance(outcome, Failure) else None


def _event() -> Any:
    import torch

    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _rounds(subjects: Sequence[Subject], rounds: int, buffer: Any) -> None:
    """Adds one sample a round to every subject; each round starts at another one."""
    import torch

    for number in range(rounds):
        first = number * len(subjects) // max(rounds, 1)
        order = [*subjects[first:], *subjects[:first]]
        marks = []
        for subject in order:
            start, end = _event(), _event()
            subject.prepare()
            buffer.zero_()
            start.record()
            subject.run()
            end.record()
            marks.append((subject, start, end))
        torch.cuda.synchronize()
        for subject, start, end in marks:
            subject.samples_us.append(start.elapsed_time(end) * 1000.0)
