"""A process of its own, with a store and a history of its own, that picks one config a key.

Call: `python deterministic_process.py HISTORY SEED N...`; prints the picks as JSON.
"""

from __future__ import annotations

import json
import random
import sys
from typing import Any

import torch

from asmtune.base.settings import Settings
from asmtune.core.problem import Problem
from asmtune.core.records.tuned import Measurement, TuneRecord
from asmtune.core.space.space import Space
from asmtune.runtime.misses.resolver import Resolver
from asmtune.runtime.options import DecoratorOptions
from asmtune.store.database import Store
from asmtune.store.lookup import StoredPrediction
from asmtune.tuning.request import TuningRequest, key_of, provenance
from tests import tuning_support as support

SPACE = Space({"BLOCK": (128, 256, 512, 1024), "FLAW": (0,), "num_warps": (1, 2, 4, 8)})


def request(n: int) -> TuningRequest:
    """A launch that adds two vectors of random numbers."""
    arguments: dict[str, Any] = {name: torch.rand(n) for name in ("x_ptr", "y_ptr", "out_ptr")}
    grid = lambda values: (-(-values["n"] // values["BLOCK"]),)  # noqa: E731
    problem = Problem(support.add, arguments | {"n": n}, grid, {"n": n})
    return TuningRequest(problem, key_of(problem, support.DEVICE), SPACE)


def remember(numbers: random.Random) -> None:
    """Keep records of other shapes and a prediction for each key, all at random."""
    configs = list(SPACE.configs())
    with Store.open(Settings.from_environment().store_where) as store:
        for power in range(4, 10):
            at = request(1 << power)
            made = provenance(at.problem, at.space)
            timings = [
                Measurement(config, us := numbers.uniform(1, 99), us, us, (us,))
                for config in numbers.sample(configs, 12)
            ]
            winner = min(timings, key=lambda timing: timing.median_us).config
            store.save(TuneRecord(at.key, winner, tuple(timings), made))
        for power in range(10, 27):
            at = request(1 << power)
            made = provenance(at.problem, at.space)
            store.save_prediction(StoredPrediction(at.key, numbers.choice(configs), 1.0, made))


def main(history: int, seed: int, sizes: list[int]) -> dict[str, Any]:
    """Return the config of each size, by a resolver with a seed."""
    random.seed(seed)
    torch.manual_seed(seed)
    if history:
        remember(random.Random(history))
    options = DecoratorOptions(
        space=SPACE, choices={"seed": seed}, on_miss="predict" if history % 2 else "tune"
    )
    resolver = Resolver(options)
    picks = {n: resolver.resolve(request(n), capturing=bool(seed % 2)) for n in sizes}
    return {str(n): [pick.how, pick.config.to_dict()] for n, pick in picks.items()}


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]), [*map(int, sys.argv[3:])])))  # noqa: T201
