"""The public functions' prepared calls, and what their host cost is measured by."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from unittest import mock

import pytest
import torch

from asmtune.kernels import _gemm_host
from asmtune.runtime.decorator import autotuners
from benchmarks.host_cost import (
    BACKWARD,
    CASES,
    FORWARD,
    ways,
)
from tests.kernels.accuracy import module_of
from tests.launch.fakes import FakeDriver
from tests.launch.stand_in import planned_launches

LAUNCHES = {
    "matmul": (1, None),
    "linear": (1, None),
    "softmax": (1, None),
    "layernorm": (1, 3),
    "rmsnorm": (1, 3),
    "cross_entropy": (2, 3),
    "attention": (1, 3),
    "gelu": (1, None),
}
"""Launches of a forward call, and of one with its backward; `test_conv2d_passes` has the others."""


@pytest.fixture
def launched(
    driver: FakeDriver, c_part: Any, workspace: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeDriver]:
    """Public functions over a driver that takes notes, with memory for split sums that is kept."""
    monkeypatch.setattr(_gemm_host, "workspace", workspace)
    with planned_launches(c_part):
        yield driver
    for name in CASES:
        for tuner in autotuners(module_of(name)):
            vars(tuner).pop("_launcher", None)


@pytest.mark.parametrize("name", LAUNCHES)
def test_public_functions_are_prepared(launched: FakeDriver, name: str) -> None:
    """A repeated call does its launches and nothing of the function, forward and backward."""
    host = getattr(module_of(name), name).prepared
    phases = ways(name, "cpu")
    for phase, expected in zip((FORWARD, BACKWARD), LAUNCHES[name], strict=True):
        assert (phase in phases) == (expected is not None)
        if expected is None:
            continue
        with torch.set_grad_enabled(phase != FORWARD):
            for _ in range(4):
                phases[phase]["ours"]()
            before = launched.noted.launches
            with ExitStack() as patches:
                for own in _hosts(name):
                    patches.enter_context(mock.patch.object(own, "function", _refuse))
                phases[phase]["ours"]()
        assert launched.noted.launches - before == expected
    assert not [reason for reason in host.refused if "no plan" not in reason]


def _hosts(name: str) -> list[Any]:
    """List the prepared functions of a public function: its own, and its backward's."""
    host = getattr(module_of(name), name).prepared
    if name == "attention":  # whose backward reads a switch first
        return [host, module_of(name).by_two_launches.prepared]
    # Cross entropy's backward divides by PyTorch before it launches.
    backward = [] if host.backward is None or name == "cross_entropy" else [host.backward.prepared]
    return [host, *backward]


def _refuse(*_: Any, **__: Any) -> None:
    raise AssertionError("the function itself was called")
