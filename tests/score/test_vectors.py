"""The learned scorer's vectors: their names, their scale, and what they are relative to."""

from __future__ import annotations

import numpy as np
import pytest

from asmtune.core.hardware.model import Target
from asmtune.core.records.verdicts import Features
from asmtune.predict.features.catalog import FEATURES
from asmtune.predict.score import vectors as module
from asmtune.predict.score.roofline import predict
from asmtune.predict.score.vectors import (
    BASE,
    LEAST_US,
    NAMES,
    Scale,
    base_columns,
    schema,
    vectors,
)


def features(**values: float) -> Features:
    """All features at zero but those given, and a launch of one program."""
    given = {"programs": 1.0, "programs_per_sm": 1.0, "num_warps": 4.0, "waves": 1.0, **values}
    return Features({**dict.fromkeys(FEATURES, 0.0), **given})


def test_by_hand(target: Target) -> None:
    """Microseconds follow from cycles, programs, SMs and the clock."""
    one = features(programs=3.0 * target.sms, tensor_cycles=1000.0, regs_per_thread=127.0)
    (row,) = base_columns([one], target)
    values = dict(zip(BASE, row, strict=True))
    us = 3 * 1000 / target.clock_hz * 1e6
    assert values["us_tensor"] == pytest.approx(np.log(us + LEAST_US), rel=1e-5)
    assert values["us_roofline"] == pytest.approx(np.log(predict(one, target).us + LEAST_US))
    assert values["registers"] == pytest.approx(np.log(128))
    assert values["us_dram"] == pytest.approx(np.log(LEAST_US))
    assert values["warps"] == 4


def test_relative_to_the_task(target: Target) -> None:
    """Above the least, above the median, and as shares of the roofline's time."""
    task = [features(regs_per_thread=r, issue_cycles=r * 100) for r in (31.0, 63.0, 255.0)]
    base = base_columns(task, target)
    rows = vectors(base, Scale.of(base))
    columns = dict(zip(NAMES, rows.T, strict=True))
    assert columns["registers over least"] == pytest.approx([0, np.log(2), np.log(8)], abs=1e-5)
    assert columns["registers over median"] == pytest.approx([-np.log(2), 0, np.log(4)], abs=1e-5)
    shares = columns["us_issue"] - columns["us_roofline"]
    assert columns["us_issue over roofline"] == pytest.approx(shares)
    assert not columns["us_roofline over roofline"].any()


def test_the_schema_knows_the_features(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other columns, features or meanings are another schema."""
    before = schema()
    assert before == schema()
    for name, other in (("NAMES", NAMES[:-1]), ("VERSION", 0), ("features_read", lambda: ("x",))):
        monkeypatch.setattr(module, name, other)
        assert schema() != before
        monkeypatch.undo()
