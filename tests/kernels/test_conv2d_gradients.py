"""The gradients of the convolution: their kernels' code, and the vendor's in their place."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from asmtune.base.settings import Settings
from asmtune.compile.worker import Workers
from asmtune.core.alternatives import call_of
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.problem import Problem
from asmtune.core.progress import ProgressListener
from asmtune.ir.asm.cubin import read_cubin
from asmtune.kernels import (
    _conv2d_bias,
    _conv2d_host,
    _conv2d_input,
    _conv2d_weight,
    conv2d,
)
from asmtune.kernels._conv2d import Window
from asmtune.measure.checks.effects import Effects
from asmtune.predict.prune.front import ProblemAnalysis
from asmtune.runtime.options import deterministic
from asmtune.workshop.kernel_checks.tolerances import excess
from tests.kernels.made import artifact_of, noted_launches
from tests.kernels.test_conv2d import copies

LAST = torch.channels_last
MODULES = {"dx": _conv2d_input, "dweight": _conv2d_weight, "dbias": _conv2d_bias}
SHARED = {
    of: Config({**module.DEFAULT.kwargs, name: 2}, num_warps=4, num_stages=3)
    for (of, module), name in zip(MODULES.items(), ("SPLIT", "WAVES", "WAVES"), strict=True)
}
"""Configs by which programs share sums."""

HOSTS = {"dx": _conv2d_input.input_gradient, "dweight": _conv2d_weight.weight_gradient}
WAYS: tuple[dict[str, Any], ...] = (
    {"padding": 1},
    {"stride": (2, 3), "padding": (0, 2)},
    {"stride": 4, "dilation": (2, 1)},
    {"stride": 2, "dilation": (2, 3), "padding": (4, 3)},
    {"padding": 1, "groups": 4},
    {"stride": (3, 1), "groups": 2, "padding": 2},
    {"taps": 1, "stride": 2},
    {"taps": 1},
)
"""Options of a convolution; `taps` of its weights."""


def operands(way: dict[str, Any], kind: Any = torch.float32, device: str = "cpu") -> dict[str, Any]:
    """Draw x, weight and dy of a convolution, and give its window and groups."""
    options = dict(way)
    taps, groups = options.pop("taps", 3), options.pop("groups", 1)
    window = Window.of(
        *(options.get(n, d) for n, d in (("stride", 1), ("padding", 0), ("dilation", 1)))
    )
    x = torch.randn(3, 32, 9, 10, dtype=kind, device=device)
    weight = torch.randn(12, 32 // groups, taps, taps, dtype=kind, device=device)
    size = window.out_size(x.shape[2:], weight.shape[2:])
    dy = torch.randn(3, 12, *size, dtype=kind, device=device)
    tensors = {
        n: t.contiguous(memory_format=LAST) for n, t in (("dy", dy), ("x", x), ("weight", weight))
    }
    return {**tensors, "window": window, "groups": groups}


def exact_gradients(given: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Compute the gradients of x and weight in float64."""
    x, weight = (given[name].detach().double().requires_grad_() for name in ("x", "weight"))
    window = given["window"]
    pairs = (window.stride, window.padding, window.dilation)
    y = torch.nn.functional.conv2d(x, weight, None, *pairs, given["groups"])
    dx, dweight = torch.autograd.grad(y, (x, weight), given["dy"].double())
    return {"dx": dx, "dweight": dweight}


def problem_of(of: str, given: dict[str, Any]) -> Problem:
    """Make the launch of one gradient."""
    module = MODULES[of]
    if of == "dbias":
        arguments = module.arguments_of(given["dy"], given["dy"], True)
    else:
        arguments = module.arguments_of(*given.values())
    return Problem(module.kernel, arguments, module.grid, {}, of)


def alternatives_of(of: str) -> dict[str, Any]:
    """Return what is called in the place of a gradient's launch, by name."""
    found: dict[str, Any] = MODULES[of]._tuned.options.choices["alternatives"]
    return found


@pytest.mark.slow(seconds=5)
@pytest.mark.parametrize("device", ["A100", "H200", "B200"])
@pytest.mark.parametrize("way", [{"padding": 1}, {"padding": 1, "stride": 2, "groups": 2}], ids=str)
@pytest.mark.parametrize("of", MODULES)
def test_kernels_compile(of: str, way: dict[str, Any], device: str, settings: Settings) -> None:
    """Tiles are copied ahead by 16 bytes into tensor cores, sums load 16 bytes, nothing spills."""
    given = operands(way, torch.float16, "meta")
    given |= {"x": _wide(given["x"], 256), "dy": _wide(given["dy"], 256)}
    weight = torch.empty(256, 256 // given["groups"], 3, 3, dtype=torch.float16, device="meta")
    given["weight"] = weight.contiguous(memory_format=LAST)
    problem = problem_of(of, given)
    artifact = artifact_of(problem, SHARED[of], settings, device)
    ptx = artifact.outputs["ptx"]
    if of == "dbias":
        assert "ld.global.v4.b32" in ptx
        assert "st.global.v4.b32" in ptx
    else:
        assert {copy.partition(",")[0] for copy in copies(ptx)} == {"0x10"}
        assert re.search(r"wgmma\.mma_async|mma\.sync|tcgen05\.mma", ptx)
    assert read_cubin(artifact.cubin).spill_words == 0


@pytest.mark.parametrize("of", MODULES)
def test_parts_of_sums_are_scratch(of: str, settings: Settings, target: Target) -> None:
    """The default writes outputs alone, as cuDNN does: what other configs write too is scratch."""
    given = operands({"padding": 1}, torch.float16, "meta")
    problem = problem_of(of, given)
    front = ProblemAnalysis(problem, target, settings, ProgressListener(), {}, Workers(1))
    default = MODULES[of].DEFAULT
    effects = Effects.of(front.works([default, SHARED[of]]), problem.arguments)
    effects = effects.beside(front.works([default]), problem.arguments)
    assert effects.scratch == {"sums_ptr", "count_ptr"}
    outputs = {f"{of}_ptr"} | ({"dz_ptr"} if of == "dbias" else set())
    assert effects.writes - effects.scratch == outputs


def _wide(image: torch.Tensor, channels: int) -> torch.Tensor:
    wide = torch.empty(image.shape[0], channels, *image.shape[2:], dtype=image.dtype, device="meta")
    return wide.contiguous(memory_format=LAST)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("of", ["dx", "dweight"])
def test_cudnn_computes_what_the_kernels_do(of: str, way: dict[str, Any]) -> None:
    """From a launch's arguments and from the function's, its gradient is that of float64."""
    torch.manual_seed(0)
    given = operands(way)
    wanted, gapped = exact_gradients(given)[of], given["x"].repeat(1, 1, 1, 2)[..., :10]
    problem = problem_of(of, {**given, "x": gapped})
    output = problem.arguments[f"{of}_ptr"]
    ((name, function),) = alternatives_of(of).items()
    output.fill_(float("nan"))
    made = function(*(problem.arguments.get(n) for n in MODULES[of].kernel.arg_names))
    assert output.isnan().all()  # what a race times copies nothing
    made()
    assert excess(output.permute(0, 3, 1, 2), wanted, {}) <= 1
    host = HOSTS[of]
    dy, x, weight, window, groups = given.values()
    for layout in (LAST, torch.contiguous_format):
        tensors = (tensor.contiguous(memory_format=layout) for tensor in (dy, x, weight))
        arguments = (*tensors, window.numbers, groups, True)
        got = host.prepared.alternatives[name](*arguments)
        assert excess(got, wanted, {}) <= 1
        assert got.is_contiguous(memory_format=LAST)


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("relu", [False, True])
def test_torch_sums_and_masks_as_the_kernel_does(relu: bool, has_bias: bool) -> None:
    """PyTorch's functions write and return the same gradients; NaN lets the gradient through."""
    torch.manual_seed(0)
    dy, y = (torch.randn(2, 6, 3, 5).contiguous(memory_format=LAST) for _ in range(2))
    y[0, 1, 2, 3] = float("nan")
    y[1, 2, 0, 0] = 0.0
    given = _conv2d_bias.arguments_of(dy, y if relu else None, has_bias)
    wanted = torch.where(y <= 0, 0.0, dy) if relu else dy
    sums = wanted.double().sum((0, 2, 3))
    call_of(_conv2d_bias._launch_torch, _conv2d_bias.kernel.arg_names, given)()
    whole = _conv2d_bias.result_gradients.prepared.alternatives["torch"]
    dz, dbias = whole(dy, y if relu else None, has_bias, True)
    assert (dz is not None, dbias is not None) == (relu, has_bias)
    if relu:
        assert torch.equal(given["dz_ptr"].permute(0, 3, 1, 2), wanted)
        assert torch.equal(dz, wanted)
    if has_bias:
        assert excess(given["dbias_ptr"], sums, {}) <= 1
        assert excess(dbias, sums, {}) <= 1


BESIDE = {"cudnn_dgrad", "cudnn_wgrad", "torch"}


@pytest.mark.parametrize("vendor", [False, True])
@pytest.mark.parametrize("channels", [3, 40])
def test_gradients_choose_as_the_forward_pass(
    channels: int, vendor: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each gradient is one launch beside the vendor's; `vendor=False` holds backward too."""
    launches = noted_launches(monkeypatch)
    monkeypatch.setattr(_conv2d_host, "_framed", lambda x, size, _: x.new_zeros(x.shape[0], *size))
    x, weight, bias = torch.randn(2, channels, 5, 5), torch.randn(4, channels, 3, 3), torch.randn(4)
    leaves = [tensor.requires_grad_() for tensor in (x, weight, bias)]
    conv2d.conv2d(*leaves, stride=2, relu=True, vendor=vendor).sum().backward()
    assert len(launches) == 4
    assert set().union(*launches[1:]) == (BESIDE if vendor else set())
    launches.clear()
    weight.requires_grad_(False)
    bias.requires_grad_(False)
    conv2d.conv2d(*leaves, vendor=vendor).sum().backward()
    assert launches[1:] == [{"cudnn_dgrad"} if vendor else set()]
    launches.clear()
    y = conv2d.conv2d(*leaves, vendor=vendor)
    with deterministic():
        y.sum().backward()
    assert launches[1:] == [set()]


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [7, 14, 28, 56])
def test_tiles_are_shared_where_there_is_room(size: int, stride: int) -> None:
    """The space splits sums where the launch has memory for their parts, and nowhere else."""
    x = torch.empty(8, 64, size, size, dtype=torch.half, device="meta")
    weight = torch.empty(256, 64, 3, 3, dtype=torch.half, device="meta")
    out = (size + 2 - 3) // stride + 1
    dy = torch.empty(8, 256, out, out, dtype=torch.half, device="meta")
    given = _conv2d_input.arguments_of(dy, x, weight, Window.of(stride, 1), 1)
    parts = {one.kwargs["SPLIT"] for one in _conv2d_input.space().configs(**given)}
    assert parts == ({1} if given["sums_ptr"] is None else {1, 2, 3, 4})
