"""Training steps of the convolution over a driver that takes notes: what a repeated one does."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest import mock

import pytest
import torch

from asmtune.kernels import _conv2d_bias, _conv2d_host, conv2d
from asmtune.runtime.decorator import autotuners
from asmtune.workshop.kernel_checks.tolerances import excess
from tests.kernels.test_conv2d_gradients import LAST, WAYS, operands
from tests.launch.fakes import FakeDriver
from tests.launch.stand_in import planned_launches


@pytest.fixture
def driven(
    driver: FakeDriver, c_part: Any, workspace: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[FakeDriver, Any]]:
    """A driver that takes notes, and memory for split sums that is kept."""
    for module in (_conv2d_host, _conv2d_bias):
        monkeypatch.setattr(module, "workspace", workspace)
    _forget()
    yield driver, partial(planned_launches, c_part)
    _forget()


def _forget() -> None:
    for module in (conv2d, _conv2d_bias):
        for tuner in autotuners(module):
            vars(tuner).pop("_launcher", None)


def _refuse(*_: Any, **__: Any) -> None:
    raise AssertionError("the function itself was called")


def _training(way: dict[str, Any], **more: Any) -> Any:
    """Return a forward and backward pass of a convolution with all gradients."""
    given = operands(way)
    leaves = [given[name].requires_grad_() for name in ("x", "weight")]
    leaves.append(torch.randn(12).requires_grad_())
    options = {name: value for name, value in way.items() if name != "taps"}

    def call() -> tuple[torch.Tensor, ...]:
        y = conv2d.conv2d(*leaves, **options, **more)
        return torch.autograd.grad(y, leaves, given["dy"])

    return call


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_repeated_passes_are_launches_alone(
    way: dict[str, Any], relu: bool, driven: tuple[FakeDriver, Any]
) -> None:
    """A repeated forward and backward pass is two launches besides cuDNN's, prepared both."""
    driver, plans = driven
    call = _training(way, relu=relu)
    with plans():
        for _ in range(2):
            call()
        before = driver.noted.launches
        hosts = [host.prepared for host in (conv2d.conv2d, _conv2d_bias.result_gradients)]
        with (
            mock.patch.object(hosts[0], "function", _refuse),
            mock.patch.object(hosts[1], "function", _refuse),
        ):
            gradients = call()
        assert driver.noted.launches - before == 2
    assert [gradient.is_contiguous(memory_format=LAST) for gradient in gradients[:2]] == [True] * 2


def test_a_winner_is_called_in_training(driven: tuple[FakeDriver, Any]) -> None:
    """Where cuDNN has won forward, a pass that is differentiated calls it without a copy."""
    torch.manual_seed(0)
    _, plans = driven
    given = operands(WAYS[0])
    x, weight = (given[name].requires_grad_() for name in ("x", "weight"))
    won = conv2d.DEFAULT.with_alternative("cudnn")
    with plans(config=won, function=0, relay=lambda *_: None):
        for _ in range(4):
            conv2d.conv2d(x, weight, padding=1)
        with mock.patch.object(conv2d._result.prepared, "function", _refuse):
            y = conv2d.conv2d(x, weight, padding=1)
    assert y.requires_grad
    assert (
        excess(y.detach(), torch.nn.functional.conv2d(x, weight, padding=1).detach().double()) <= 1
    )
