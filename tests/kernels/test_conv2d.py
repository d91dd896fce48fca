"""The convolution: how its tiles are loaded, and its sizes."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.kernels import conv2d
from asmtune.kernels._conv2d import Window
from tests.kernels.made import artifact_of

TILE = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64, "SPLIT": 1}


def layer(channels: int, filters: int, taps: int, size: int = 14) -> dict[str, int]:
    sizes = {"batch": 4, "height": size, "width": size, "stride": 1}
    return {**sizes, "channels": channels, "filters": filters, "taps": taps}


@pytest.fixture
def compiled(settings: Settings, target: Target) -> Any:
    """Compile for a shape: outputs by stage."""

    def compile_at(shape: dict[str, int], dtype: str = "bf16", **changed: int) -> Any:
        problem = conv2d.problem(shape, dtype, "meta")
        config = Config({**TILE, **changed}, num_warps=4, num_stages=3)
        return artifact_of(problem, config, settings, target).outputs

    return compile_at


def copies(ptx: str) -> list[str]:
    """Give what follows the addresses of each copy into shared memory: its size, and its mask's."""
    return re.findall(r"cp\.async\.c[ag]\.shared\.global \[[^]]*\], \[[^]]*\], ([^;]*);", ptx)


@pytest.mark.slow
@pytest.mark.parametrize(("channels", "taps"), [(64, 3), (72, 3), (72, 1), (8, 3), (16, 5)])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_channels_are_copied_by_16_bytes(
    channels: int, taps: int, dtype: str, compiled: Any
) -> None:
    """A multiple of 8 channels goes past the registers, 16 bytes at once, into tensor cores."""
    ptx = compiled(layer(channels, 200, taps), dtype)["ptx"]
    assert copies(ptx)
    assert {copy.partition(",")[0] for copy in copies(ptx)} == {"0x10"}
    assert "wgmma.mma_async" in ptx
    assert "st.global.v4.b32" in ptx


@pytest.mark.parametrize(("channels", "taps"), [(3, 7), (1, 3), (12, 3)])
def test_few_channels_are_copied_by_rows(channels: int, taps: int, compiled: Any) -> None:
    """Of 3 channels a row of 7 taps is read by 8 bytes at least, without a mask of its own."""
    ptx = compiled(layer(channels, 64, taps), BLOCK_K=32)["ptx"]
    wide = "0x8" if channels <= 4 else "0x10"
    assert {copy.partition(",")[0] for copy in copies(ptx)} == {wide}
    assert "wgmma.mma_async" in ptx
    assert "ld.global.b16" not in ptx


@given(
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    taps=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    settings_=st.tuples(*(st.tuples(st.integers(*r), st.integers(*r)) for r in ((1, 4), (0, 5)))),
    dilation=st.integers(1, 3),
)
def test_sizes_are_those_of_pytorch(
    size: tuple[int, int], taps: tuple[int, int], settings_: Any, dilation: int
) -> None:
    """The result has the shape that PyTorch's has, and is refused where PyTorch refuses."""
    x, weight = torch.empty(2, 3, *size, device="meta"), torch.empty(5, 3, *taps, device="meta")
    stride, padding = settings_
    window = Window.of(stride, padding, dilation)
    try:
        wanted = torch.nn.functional.conv2d(x, weight, None, stride, padding, dilation).shape
    except RuntimeError:
        with pytest.raises(ValueError, match=r"conv2d: the window spans .* pad more"):
            window.out_size(size, taps)
    else:
        assert (2, 5, *window.out_size(size, taps)) == tuple(wanted)


def test_tiles_are_shared_where_there_are_few() -> None:
    """7 x 7 maps may split their sums; 56 x 56 maps have no room for it, and need none."""
    few, many = layer(512, 512, 3, 7), {**layer(64, 64, 3, 56), "batch": 32}
    splits = [
        {config.kwargs["SPLIT"] for config in conv2d.space().configs(**shape)}
        for shape in (few, many)
    ]
    assert splits == [{1, 2, 3, 4}, {1}]
    arguments = [conv2d.problem(shape, "fp16", "meta").arguments for shape in (few, many)]
    assert arguments[0]["sums_ptr"].numel() >= 4 * arguments[0]["y_ptr"].numel()
    assert arguments[1]["sums_ptr"] is None


def test_too_many_pixels_are_refused() -> None:
    """Pixels of the result are counted in 32 bits."""
    x, weight = (torch.zeros(1).expand(n, 4, 256, 256) for n in (1 << 16, 8))
    with pytest.raises(ValueError, match="conv2d: the result is 65536 images of 256 x 256"):
        conv2d.conv2d(x, weight[:, :, :1, :1])
