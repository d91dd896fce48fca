"""Options of the convolution: windows in the image, and checks of the tensors' shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from asmtune.kernels._common import check_shape


@dataclass(frozen=True)
class Window:
    """Stride, padding and dilation of the windows, as pairs of (down, across)."""

    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    @classmethod
    def of(cls, stride: Any, padding: Any, dilation: Any = 1) -> Window:
        """Make a window from pairs or single numbers.

        Raises:
            ValueError: an option is no pair of whole numbers within its range.
        """
        return cls(
            stride=_pair("stride", stride, 1),
            padding=_pair("padding", padding, 0),
            dilation=_pair("dilation", dilation, 1),
        )

    @classmethod
    def of_numbers(cls, numbers: Sequence[int]) -> Window:
        """Make a window from what `numbers` gives."""
        return cls((numbers[0], numbers[1]), (numbers[2], numbers[3]), (numbers[4], numbers[5]))

    @property
    def numbers(self) -> tuple[int, ...]:
        """Give all pairs in one tuple, which a signature of `replay_calls` can hold."""
        return (*self.stride, *self.padding, *self.dilation)

    @property
    def is_whole(self) -> bool:
        """Say if there is a single tap that sees every pixel once, and nothing else."""
        return self.stride == (1, 1) and self.padding == (0, 0)

    def out_size(self, sizes: Sequence[int], taps: Sequence[int]) -> tuple[int, int]:
        """Compute height and width of the result.

        Raises:
            ValueError: the window is larger than the padded image.
        """
        down, across = (self._out_extent(axis, sizes[axis], taps[axis]) for axis in (0, 1))
        return down, across

    def _out_extent(self, axis: int, size: int, taps: int) -> int:
        padded = size + 2 * self.padding[axis]
        span = (taps - 1) * self.dilation[axis] + 1
        if span > padded:
            raise ValueError(
                f"conv2d: the window spans {span} pixels {('down', 'across')[axis]} and the padded "
                f"image has {padded}; pad more, or take fewer taps"
            )
        return (padded - span) // self.stride[axis] + 1


def _pair(name: str, value: Any, least: int) -> tuple[int, int]:
    if type(value) is int and value >= least:
        return value, value
    pair = tuple(value) if isinstance(value, tuple | list) else (value, value)
    whole = [isinstance(n, int) and not isinstance(n, bool) and n >= least for n in pair]
    if len(pair) != 2 or not all(whole):
        raise ValueError(
            f"conv2d: {name} is {value!r}; it must be a whole number of {least} or more, or two"
        )
    return pair


def check_shapes(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, groups: Any
) -> None:
    """Refuse an x that is no image, groups, a weight or a bias that do not fit.

    Raises:
        ValueError: it does not fit; the message says what it is and what it must be.
    """
    if x.ndim != 4 or not x.shape[1]:
        raise ValueError(
            f"conv2d: x is {tuple(x.shape)}; it must be (batch, channels, height, width)"
        )
    whole = isinstance(groups, int) and not isinstance(groups, bool) and groups >= 1
    if not whole or x.shape[1] % groups:
        raise ValueError(
            f"conv2d: groups is {groups!r}; it must be a whole number that divides x's "
            f"{x.shape[1]} channels"
        )
    wanted = x.shape[1] // groups
    if weight.ndim != 4 or weight.shape[1] != wanted or 0 in weight.shape[2:]:
        raise ValueError(
            f"conv2d: weight is {tuple(weight.shape)}; it must be (filters, {wanted}, "
            f"taps_h, taps_w), for {x.shape[1]} channels in groups={groups}"
        )
    if weight.shape[0] % groups:
        raise ValueError(
            f"conv2d: weight has {weight.shape[0]} filters; groups={groups} must divide them"
        )
    if bias is not None:
        check_shape("conv2d", "bias", bias, (weight.shape[0],))
