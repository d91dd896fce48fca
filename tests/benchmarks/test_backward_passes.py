"""`benchmarks.backward_passes`: its gradients are right, and what is wrong is not timed."""

from __future__ import annotations

import pytest

from benchmarks.backward_passes import is_right
from tests.interpreter import Interpreter


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
