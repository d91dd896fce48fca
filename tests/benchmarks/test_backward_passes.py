"""`benchmarks.backward_passes`: its gradients are right, and what is wrong is not timed."""

from __future__ import annotations

from benchmarks.backward_passes import is_right


def test_what_is_right() -> None:
    """A gradient may be off by the tolerance, or by twice PyTorch's own error."""
    assert is_right({"ours": {"x": 1.0}, "torch": {"x": 0.1}})
    assert is_right({"ours": {"x": 3.9}, "torch": {"x": 2.0}})
    assert not is_right({"ours": {"x": 1.1, "h0": 0.1}, "torch": {"x": 0.5, "h0": 9.0}})
    assert not is_right({"ours": {"x": float("nan")}, "torch": {"x": 0.5}})
