"""The coverage of promises: what was promised by other kernels stands beside what was kept."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.measured_error import RankedTask
from benchmarks.promise import measured


def ranked(kernels: int, slow: float, name: str) -> list[RankedTask]:
    """Tasks of 30 configs, whose ranking is right but for noise of a deviation."""
    made = []
    for number in range(kernels):
        rng = np.random.default_rng(number)
        times = np.sort(rng.uniform(0.0, 1.0, 30))
        scores = (-times + rng.normal(0.0, slow, 30)).tolist()
        slowdown = (times - times[0]).tolist()
        made.append(RankedTask(f"{name}{number}", scores, slowdown))
    return made


@pytest.mark.slow(seconds=3)
def test_promises_of_another_kind_need_kernels_of_it() -> None:
    """A kind that is ranked worse keeps what it was promised once kernels of it are weighed."""
    tasks = [*ranked(60, 0.1, "a"), *ranked(20, 1.0, "b")]
    files = ["known"] * 60 + ["kinds"] * 20
    kinds = {task.kernel for task in tasks if task.kernel.startswith("b")}
    apart = []
    for unlike in (set(), kinds):
        result = measured(files, {"learned": tasks}, unlike)["learned"]["5"]["files"]["kinds"]
        apart.append(result["promised"] - result["share"])
    assert apart[0] > 0.03 > abs(apart[1])
