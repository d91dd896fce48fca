"""A GPU's queue and a host that fills it, in simulated time; and a clock of known times."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.measure.timing.clock import Subject

T = TypeVar("T")


@dataclass
class SimulatedMark:
    """A point in the queue: when the GPU comes past it."""

    gpu: SimulatedGpu
    at_us: float = float("nan")

    def query(self) -> bool:
        """Say if the mark was passed when the host asked."""
        return self.gpu.call(lambda: self.gpu.host_us >= self.at_us)

    def elapsed_time(self, end: SimulatedMark, /) -> float:
        """Milliseconds between two marks."""
        return (end.at_us - self.at_us) / 1e3


@dataclass
class SimulatedGpu:
    """Stand-in for `asmtune.measure.timing.clock.CudaDevice`: a queue worked off in order.

    The host takes `call_us` for each call, and after it `stall` microseconds more:
    another thread has the interpreter. The GPU begins what is queued as soon as it is
    free, and waits for the host where nothing is.

    Attributes:
        slowdown: of all that the GPU does, by the time at which it begins.
        busy_us: GPU time by what it was spent on.
        begun: what the GPU began, in order.
    """

    call_us: float = 3.0
    flush_us: float = 60.0
    stall: Callable[[], float] = lambda: 0.0
    slowdown: Callable[[float], float] = lambda _: 1.0
    host_us: float = 0.0
    free_us: float = 0.0
    busy_us: dict[str, float] = field(default_factory=dict)
    begun: list[str] = field(default_factory=list)
    _captured: list[Callable[[], None]] | None = None

    def call(self, action: Callable[[], T]) -> T:
        """Make one call into the driver."""
        self.host_us += self.call_us
        result = action()
        self.host_us += self.stall()
        return result

    def launch(self, what: str, us: float) -> None:
        """Queue work for the GPU; what a subject's `run` does."""
        self._queue(lambda: self._work(what, us))

    def now_us(self) -> float:
        """The host's clock."""
        return self.host_us

    def mark(self, *, captured: bool = False) -> SimulatedMark:
        """A mark at the end of the queue."""
        assert captured == (self._captured is not None)
        mark = SimulatedMark(self)

        def come_past() -> None:
            mark.at_us = max(self.host_us, self.free_us)

        self._queue(come_past)
        return mark

    def flush(self) -> None:
        """Take `flush_us`, whatever it does to the caches."""
        self.launch("flush", self.flush_us)

    def hold(self, us: float) -> None:
        """Take as long as it should."""
        self.launch("hold", us)

    def capture(self, body: Callable[[], None]) -> Callable[[], None]:
        """Keep what is queued; one call queues it again."""
        nodes: list[Callable[[], None]] = []
        self._captured = nodes
        try:
            body()
        finally:
            self._captured = None
        return lambda: self.call(lambda: [node() for node in nodes].clear())

    def wait(self) -> None:
        """The host sleeps until the GPU is done."""
        self.call(lambda: None)
        self.host_us = max(self.host_us, self.free_us)

    def _queue(self, node: Callable[[], None]) -> None:
        if self._captured is None:
            self.call(node)
        else:
            self._captured.append(node)

    def _work(self, what: str, us: float) -> None:
        begin_us = max(self.host_us, self.free_us)
        taken_us = us * self.slowdown(begin_us)
        self.free_us = begin_us + taken_us
        self.busy_us[what] = self.busy_us.get(what, 0.0) + taken_us
        self.begun.append(what)


@dataclass
class SimulatedClock:
    """A clock by which each config takes the time it is said to, times noise and drift.

    Attributes:
        times_us: the true time by config.
        noise: a factor of each sample, from its random generator and the sample's number.
        drift: a factor common to all, by simulated time in microseconds.
        refused: configs that cannot be launched.
        rounds: the configs of each round, in order.
    """

    times_us: dict[Config, float]
    noise: Callable[[random.Random, int], float] = lambda *_: 1.0
    drift: Callable[[float], float] = lambda _: 1.0
    seed: int = 0
    refused: frozenset[Config] = frozenset()
    rounds: list[list[Config]] = field(default_factory=list)
    now_us: float = 0.0

    def __post_init__(self) -> None:
        self.generator = random.Random(self.seed)
        self.taken: dict[Config, int] = {}

    def warm_up(self, subject: Subject) -> Failure | None:
        """Take a while; refuse some."""
        self.now_us += 100
        refused = subject.config in self.refused
        return Failure("launch", "compiler", "refused") if refused else None

    def round(self, subjects: Sequence[Subject]) -> list[float]:
        """Their times, one after another."""
        self.rounds.append([subject.config for subject in subjects])
        return [self._sample(subject.config) for subject in subjects]

    def _sample(self, config: Config) -> float:
        number = self.taken.get(config, 0)
        self.taken[config] = number + 1
        sample = self.times_us[config] * self.noise(self.generator, number)
        sample *= self.drift(self.now_us)
        self.now_us += sample + 60
        return sample


def subjects_of(times_us: Sequence[float]) -> tuple[list[Subject], dict[Config, float]]:
    """Subjects of given times, told apart by a number, and the times by config."""
    configs = [Config({"number": number}) for number in range(len(times_us))]
    subjects = [Subject(config, lambda: None, lambda: None) for config in configs]
    return subjects, dict(zip(configs, times_us, strict=True))
