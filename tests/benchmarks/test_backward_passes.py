"""`benchmarks.backward_passes`: its gradients are right, and what is wrong is not timed."""

from __future__ import annotations

from typing import Any

import pytest

from asmtune.measure.timing.policy import TimingPolicy
from benchmarks import backward_passes
from benchmarks.backward_passes import is_right
from tests.interpreter import Interpreter

SHAPE = {"seq": 3, "batch": 2, "input": 4, "hidden": 4}


@pytest.mark.slow(seconds=5)
@pytest.mark.parametrize("name", ["conv2d", "gru"])
def test_gradients_against_float64(name: str, interpreter: Interpreter) -> None:
    """Each gradient of both is as near to float64 as the check asks for, and all launches run."""
    found = interpreter.call("tests.kernels.interpreted_backward:errors", name)
    assert is_right(found), found
    assert found["ours"].keys() == found["torch"].keys() >= {"x"}


def test_what_is_right() -> None:
    """A gradient may be off by the tolerance, or by twice PyTorch's own error."""
    assert is_right({"ours": {"x": 1.0}, "torch": {"x": 0.1}})
    assert is_right({"ours": {"x": 3.9}, "torch": {"x": 2.0}})
    assert not is_right({"ours": {"x": 1.1, "h0": 0.1}, "torch": {"x": 0.5, "h0": 9.0}})
    assert not is_right({"ours": {"x": float("nan")}, "torch": {"x": 0.5}})


def test_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row has both passes' times and speeds; one that is wrong has none."""
    monkeypatch.setattr(backward_passes, "errors", lambda *_: found)
    monkeypatch.setattr(backward_passes, "launches", lambda *_: {})
    times: dict[str, Any] = {
        "ours, forward and backward": {"p50_us": 10.0},
        "torch, forward and backward": {"p50_us": 15.0},
        "ours, backward": {"failed": "no room"},
        "torch, backward": {"p50_us": 9.0},
    }
    monkeypatch.setattr(backward_passes, "timed", lambda *_: times)
    found = {"ours": {"x": 0.5}, "torch": {"x": 0.5}}
    row = backward_passes.row("gru", SHAPE, TimingPolicy(), "cpu")
    assert row["forward and backward, over torch"] == 1.5
    assert "backward, over torch" not in row
    found = {"ours": {"x": 1.5}, "torch": {"x": 0.5}}
    row = backward_passes.row("gru", SHAPE, TimingPolicy(), "cpu")
    assert row["wrong"]
    assert "times" not in row
