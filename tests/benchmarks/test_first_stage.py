"""What is lost where a part of a space is sketched: constants are those of the recorded file."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest

from asmtune.predict.score.keep import MOST_LOST
from benchmarks.harness import RESULTS


def _low(shares: Sequence[float]) -> float:
    """The share that all but one in ten tasks keep."""
    return sorted(shares)[len(shares) // 10]


@pytest.mark.parametrize("part", MOST_LOST)
def test_the_largest_losses(part: str) -> None:
    """By group of cuts: the mean share, the low one, and how often the best is dropped."""
    data = json.loads((RESULTS / "first_stage.json").read_text())
    for group, losses in zip(((1, 5), (10, 20)), MOST_LOST[part], strict=True):
        found = []
        for scorer in ("roofline", "learned"):
            for at in map(data["cuts"].index, group):
                whole, some = (
                    [task["kept"][f"{scorer}, {which} sketched"][at] for task in data["tasks"]]
                    for which in ("all", f"a {part}")
                )
                dropped = np.mean(np.array(some) < 0.99) - np.mean(np.array(whole) < 0.99)
                lost = np.mean(whole) - np.mean(some)
                found.append((lost, _low(whole) - _low(some), dropped))
        assert losses == pytest.approx(np.max(found, axis=0), abs=6e-4)
