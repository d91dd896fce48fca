"""Candidates of a task with random cycles and registers, for tests of the learned scorer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.records.verdicts import Features
from asmtune.predict.features.catalog import FEATURES
from asmtune.predict.score.scorer import Candidate


def features(seed: int, count: int = 40) -> list[Features]:
    """Features of a task's candidates."""
    generator = np.random.default_rng(seed)
    found = []
    for row in generator.random((count, 4)):
        values = {
            "programs": 4000.0,
            "programs_per_sm": 2.0,
            "waves": 15.2,
            "num_warps": 4.0,
            "tensor_cycles": 1e4 * row[0],
            "issue_cycles": 1e4 * row[1],
            "latency_cycles": 3e4 * row[2],
            "regs_per_thread": float(int(32 + 200 * row[3])),
        }
        found.append(Features({**dict.fromkeys(FEATURES, 0.0), **values}))
    return found


def times(found: Sequence[Features]) -> list[float]:
    """Give times in which registers count, which the roofline does not know."""
    return [1 + f["regs_per_thread"] + 1e-3 * f["issue_cycles"] for f in found]


def candidates(seed: int, target: Target, count: int = 40) -> list[Candidate]:
    """Compiled candidates of one task."""
    found = features(seed, count)
    return [Candidate(Config({"n": i}), target, features=f) for i, f in enumerate(found)]
