"""The gradients of the convolution: cuDNN's, and the kernel of bias and ReLU."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.problem import Problem
from asmtune.ir.asm.cubin import read_cubin
from asmtune.kernels import _conv2d_bias, _conv2d_host, conv2d
from asmtune.kernels._conv2d import Window, gradients
from asmtune.runtime.options import deterministic
from asmtune.workshop.kernel_checks.tolerances import excess
from tests.kernels.made import artifact_of, noted_launches

LAST = torch.channels_last
SHARED = Config({**_conv2d_bias.DEFAULT.kwargs, "WAVES": 2}, num_warps=4, num_stages=3)
"""A config by which programs share sums."""

WAYS: tuple[dict[str, Any], ...] = (
    {"padding": 1},
    {"stride": (2, 3), "padding": (0, 2)},
    {"stride": 2, "dilation": (2, 3), "padding": (4, 3)},
    {"padding": 1, "groups": 4},
    {"taps": 1, "stride": 2},
)
"""Options of a convolution; `taps` of its weights."""


def operands(way: dict[str, Any], kind: Any = torch.float32, device: str = "cpu") -> dict[str, Any]:
    """Draw x, weight and dy of a convolution, and give its window and groups."""
    options = dict(way)
    taps, groups = options.pop("taps", 3), options.pop("groups", 1)
    window = Window.of(**options)
    x = torch.randn(3, 32, 9, 10, dtype=kind, device=device)
    weight = torch.randn(12, 32 // groups, taps, taps, dtype=kind, device=device)
    size = window.out_size(x.shape[2:], weight.shape[2:])
    dy = torch.randn(3, 12, *size, dtype=kind, device=device)
    tensors = {
        n: t.contiguous(memory_format=LAST) for n, t in (("dy", dy), ("x", x), ("weight", weight))
    }
    return {**tensors, "window": window, "groups": groups}


def exact_gradients(given: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """Compute the gradients of x and weight in float64."""
    leaves = [given[name].detach().double().requires_grad_() for name in ("x", "weight")]
    y = torch.nn.functional.conv2d(*leaves, None, *given["window"].pairs, given["groups"])
    return torch.autograd.grad(y, leaves, given["dy"].double())


def of_bias(dy: torch.Tensor) -> Problem:
    """Make the launch of the gradients through ReLU and of the bias."""
    arguments = _conv2d_bias.arguments_of(dy, dy, True)
    return Problem(_conv2d_bias.kernel, arguments, _conv2d_bias.grid, {}, "dbias")


def _meta(*extents: int) -> torch.Tensor:
    empty = torch.empty(*extents, dtype=torch.float16, device="meta")
    return empty.contiguous(memory_format=LAST)


@pytest.mark.slow(seconds=5)
@pytest.mark.parametrize("device", ["A100", "H200", "B200"])
def test_the_biass_kernel_compiles(device: str, settings: Settings) -> None:
    """Sums load and store 16 bytes at once, and nothing spills."""
    artifact = artifact_of(of_bias(_meta(3, 256, 9, 10)), SHARED, settings, device)
    assert "ld.global.v4.b32" in artifact.outputs["ptx"]
    assert "st.global.v4.b32" in artifact.outputs["ptx"]
    assert read_cubin(artifact.cubin).spill_words == 0


@pytest.mark.parametrize("layout", [LAST, torch.contiguous_format], ids=str)
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_gradients_of_image_and_weights(way: dict[str, Any], layout: Any) -> None:
    """Each is that of float64, in channels_last, alone and with the other; else there is none."""
    torch.manual_seed(0)
    given = operands(way)
    wanted = exact_gradients(given)
    laid = [given[n].contiguous(memory_format=layout) for n in ("dy", "x", "weight")]
    for needed in ((True, True), (True, False), (False, True)):
        made = gradients(*laid, given["window"], given["groups"], needed)
        assert tuple(one is not None for one in made) == needed
        for got, want in zip(made, wanted, strict=True):
            if got is not None:
                assert excess(got, want, {}) <= 1
                assert got.is_contiguous(memory_format=LAST)


@pytest.mark.parametrize("channels", [3, 40])
def test_gradients_take_one_launch_beside_cudnns(
    channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ReLU and the bias are one launch; a fixed order holds for cuDNN as well."""
    launches = noted_launches(monkeypatch)
    monkeypatch.setattr(_conv2d_host, "framed", lambda x, size, _: x.new_zeros(x.shape[0], *size))
    x, weight, bias = torch.randn(2, channels, 5, 5), torch.randn(4, channels, 3, 3), torch.randn(4)
    leaves = [tensor.requires_grad_() for tensor in (x, weight, bias)]
    conv2d.conv2d(*leaves, stride=2, relu=True).sum().backward()
    assert launches[1:] == [set()]
    launches.clear()
    orders: list[bool] = []

    def note(*given: Any) -> tuple[torch.Tensor, ...]:
        orders.append(torch.backends.cudnn.deterministic)
        return gradients(*given)

    monkeypatch.setattr(conv2d, "gradients", note)
    y = conv2d.conv2d(*leaves)
    with deterministic():
        y.sum().backward(retain_graph=True)
    y.sum().backward()
    assert launches[1:] == [set(), set()]
    assert orders == [True, False]
