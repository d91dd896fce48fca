"""A compiler and timer for tests of the search: a bowl of configs whose times are known."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement, Outcome
from asmtune.core.records.verdicts import Reason, Verdict

Time = Callable[[Config], float]


def grid(*sizes: int) -> list[Config]:
    """Configs of as many axes, A, B, ..., with as many values each: 16, 32, 64, ..."""
    points: list[dict[str, int]] = [{}]
    for axis, size in enumerate(sizes):
        name = chr(ord("A") + axis)
        points = [{**point, name: 16 << place} for point in points for place in range(size)]
    return [Config(point) for point in points]


def bowl(**best: int) -> Time:
    """Microseconds that grow with the distance from the best config, 5% for the first step."""

    def us(config: Config) -> float:
        away = sum(abs(math.log2(config.kwargs[name] / value)) for name, value in best.items())
        return 100.0 * 1.05**away

    return us


def foreseen(configs: Iterable[Config]) -> list[Verdict]:
    """Nothing is known against any of them."""
    return [Verdict(config, True) for config in configs]


def measured(config: Config, us: float) -> Measurement:
    """A timing."""
    return Measurement(config, us, us, us, (us,))


class Bench:
    """Compiler and timer in one, which notes what it is asked, in order.

    Args:
        time: of a config that runs.
        broken: configs that do not compile.
        refused: configs that fail on the GPU.
    """

    def __init__(
        self,
        time: Time,
        broken: Iterable[Config] = (),
        refused: Iterable[Config] = (),
    ) -> None:
        self.time, self.broken, self.refused = time, set(broken), set(refused)
        self.events: list[tuple[str, list[Config]]] = []
        self._batch: list[Config] = []

    def noted(self, event: str) -> list[Config]:
        """All configs of one kind of event, in order: "start" or "trial"."""
        return [config for name, configs in self.events if name == event for config in configs]

    def start(self, configs: Sequence[Config]) -> None:
        """Take a batch."""
        assert not self._batch, "one batch at a time"
        self._batch = list(configs)
        self.events.append(("start", list(configs)))

    def collect(self) -> list[Verdict]:
        """Verdicts of the batch."""
        batch, self._batch = self._batch, []
        self.events.append(("collect", batch))
        return [self._verdict(config) for config in batch]

    def trial(self, verdicts: Sequence[Verdict]) -> list[Outcome]:
        """A timing or a failure of each."""
        configs = [verdict.config for verdict in verdicts]
        self.events.append(("trial", configs))
        return [(config, self._outcome(config)) for config in configs]

    def _outcome(self, config: Config) -> Measurement | Failure:
        if config in self.refused:
            return Failure("launch", "memory", "an illegal memory access was encountered")
        return measured(config, self.time(config))

    def _verdict(self, config: Config) -> Verdict:
        if config not in self.broken:
            return Verdict(config, True, artifact=f"artifact of {config}")
        failure = Failure("ptx", "registers", f"too few for {config}")
        return Verdict(config, False, "compile", (Reason("registers", "too few"),), failure=failure)
