"""The replay of records between devices: columns of another device, and what its file claims."""

from __future__ import annotations

import json

import numpy as np
import pytest

from asmtune.core.hardware.shipped import load_target
from asmtune.core.records.verdicts import Features
from asmtune.predict.score.vectors import base_columns, features_read
from benchmarks import devices
from benchmarks.provenance import RESULTS


def features(seed: int, scale: float) -> Features:
    """Made-up features of a launch; `scale` is of its bytes."""
    draws = np.random.default_rng(seed)
    values = {name: float(draws.uniform(1.0, 2000.0)) for name in features_read()}
    values |= {"programs": 4096.0, "programs_per_sm": 2.0, "unique_bytes": scale, "updates": 0.0}
    values |= {"program_l2_bytes": scale / 2048.0, "lock_turns": 0.0}
    return Features(values)


@pytest.mark.parametrize("scale", [1e5, 1e7, 1e9])
def test_columns_of_another_device(scale: float) -> None:
    """Columns that were moved to an H100 are those that its own target gives."""
    h200, h100 = load_target("H200"), load_target("H100")
    launches = [features(seed, scale) for seed in range(8)]
    there = base_columns(launches, h200)
    assert np.allclose(devices.moved(there, h200, h200), there, atol=1e-4)
    assert np.allclose(devices.moved(there, h200, h100), base_columns(launches, h100), atol=1e-3)


def test_eight_timings_keep_enough() -> None:
    """With 8 timings at least 0.95 of the best speed is kept on every task of the file."""
    moves = json.loads((RESULTS / "devices.json").read_text())["moves"]
    replayed = [result for own in moves.values() for result in own.values() if "kept" in result]
    assert len(replayed) == 2 * (1 + len(devices.HALVED))
    for result in replayed:
        for use in ("search", "retarget"):
            assert result["kept"][f"{use}, {devices.TIMINGS} timings"]["worst"] >= 0.95
