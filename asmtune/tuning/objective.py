"""`Objective`: the meaning of "best": time, or a weighted sum of time, energy, memory and error.

Each quantity counts relative to the default config's, so that weights need no units:
`time=1,energy=0.5` calls a config that takes 10% less energy as good as one that is 5% faster.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from asmtune.base.errors import InputError
from asmtune.core.config import Config

QUANTITIES: Final = ("time", "energy", "memory", "error")

_FORM: Final = (
    'give time, energy, memory or error, weights such as "time=1,energy=0.2", '
    'or pareto, also after weights ("time=1,memory=0.1,pareto")'
)


@dataclass(frozen=True)
class Costs:
    """The costs of one launch of a config.

    Attributes:
        config: the config.
        time_us: microseconds.
        energy_mj: millijoules that the GPU took; None where they were not measured.
        memory_bytes: registers and shared memory that a program holds while it runs.
        flops: operations on tensor cores; None if it has none there.
        error: p99 of the relative error of its outputs; None where no bound is given.
    """

    config: Config
    time_us: float
    energy_mj: float | None
    memory_bytes: int
    flops: float | None = None
    error: float | None = None

    def values(self) -> dict[str, float | None]:
        """Return the costs by quantity."""
        costs = (self.time_us, self.energy_mj, self.memory_bytes, self.error)
        return dict(zip(QUANTITIES, costs, strict=True))


@dataclass(frozen=True)
class Objective:
    """Weights by quantity.

    Attributes:
        weights: above 0, of some of `QUANTITIES`.
        pareto: list all configs that no other config dominates.
    """

    weights: Mapping[str, float]
    pareto: bool = False

    @classmethod
    def parse(cls, text: str) -> Objective:
        """Parse an objective as the command line has it.

        Raises:
            InputError: it is of no such form; says which forms there are.
        """
        weights: dict[str, float] = {}
        pareto = False
        for part in text.split(","):
            name, equals, value = (piece.strip() for piece in part.partition("="))
            if name == "pareto" and not equals:
                pareto = True
            elif name not in QUANTITIES or name in weights:
                raise InputError(f"objective {text!r}: {_FORM}")
            else:
                weights[name] = _weight(text, value) if equals else 1.0
        return cls(weights or {"time": 1.0}, pareto)

    def __str__(self) -> str:
        parts = [f"{name}={weight:g}" for name, weight in sorted(self.weights.items())]
        return ",".join([*parts, *(["pareto"] if self.pareto else [])])

    @property
    def only_time(self) -> bool:
        """Return whether nothing but time counts, so that nothing else need be measured."""
        return set(self.weights) == {"time"} and not self.pareto

    @property
    def needs_energy(self) -> bool:
        """Return whether energy must be measured."""
        return "energy" in self.weights or self.pareto

    def sums(self, costs: Sequence[Costs], base: Costs) -> list[float]:
        """Return the weighted sum of each config's costs over the base's; lower is better.

        Raises:
            InputError: energy or error has a weight and was not measured.
        """
        return [self._sum(one, base) for one in costs]

    def _sum(self, one: Costs, base: Costs) -> float:
        mine, reference = one.values(), base.values()
        total = 0.0
        for name, weight in self.weights.items():
            value, unit = mine[name], reference[name]
            if value is None or unit is None:
                missing = (
                    "give check=Bound(...)"
                    if name == "error"
                    else "this GPU's driver gives no energy counter; install nvidia-ml-py"
                )
                raise InputError(f"objective with {name}: {missing}, or leave {name} out")
            if name == "error" and value and not unit:
                return math.inf  # the base is exact
            total += weight * value / unit if unit else 0.0
        return total


def pareto_front(costs: Iterable[Costs]) -> list[Costs]:
    """Return the costs that no other dominates, fastest first.

    A quantity that was not measured of all counts for none.
    """
    listed = list(costs)
    measured = [
        name for name in QUANTITIES if all(one.values()[name] is not None for one in listed)
    ]
    points = [tuple(one.values()[name] or 0.0 for name in measured) for one in listed]
    front = [
        one
        for one, point in zip(listed, points, strict=True)
        if not any(_dominates(other, point) for other in points)
    ]
    return sorted(front, key=lambda one: one.time_us)


def _dominates(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def _weight(text: str, value: str) -> float:
    try:
        weight = float(value)
    except ValueError:
        weight = math.nan
    if not 0 < weight < math.inf:
        raise InputError(f"objective {text!r}: weight {value!r} is no number above 0; {_FORM}")
    return weight
