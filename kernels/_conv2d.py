"""The convolution: device functions, options, and cuDNN's functions of it and of its gradients.

`window` is (taps_h, taps_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w), `x` a
pointer and the strides of images, rows and columns, `sizes` (batch, height, width, depth,
filters, out_height, out_width), where depth is how many channels a tap has.

cuDNN adds a bias in its kernel only where ReLU follows; PyTorch adds it in a pass of its own else.
The tuning key tells neither bias nor ReLU. So each way of calling has a name of its own: what has
won for one of them is not called for another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.kernels._common import check_shape, of_own_dtype


@triton.jit
def within(place, extent):
    """Return whether 0 <= place < extent, by one comparison."""
    return place.to(tl.uint32, bitcast=True) < extent.to(tl.uint32)


@triton.jit
def next_step(r, s, c, depth, TAPS_W: tl.constexpr, BLOCK_K: tl.constexpr):
    """Return the next block's tap and channel without divisions, which take longer than loads."""
    c += BLOCK_K
    r = tl.where((c >= depth) & (s == TAPS_W - 1), r + 1, r)
    s = tl.where(c >= depth, tl.where(s == TAPS_W - 1, 0, s + 1), s)
    return r, s, tl.where(c >= depth, 0, c)


@triton.jit
def pixel_rows(x, sizes, pixel, window: tl.constexpr, IN_PLACE: tl.constexpr):
    """Return addresses, rows and columns of the first taps of pixels of the result."""
    batch, _, _, _, _, out_height, out_width = sizes
    # Past the last pixel the last is taken again: no mask is needed along the pixels.
    known = tl.minimum(pixel, batch * out_height * out_width - 1)
    if IN_PLACE:
        x_rows, row, col = x[0] + known.to(tl.int64) * x[3], known, known
    else:
        image, place = known // (out_height * out_width), known % (out_height * out_width)
        row = place // out_width * window[2] - window[4]
        col = place % out_width * window[3] - window[5]
        x_rows = x[0] + image.to(tl.int64) * x[1] + row.to(tl.int64) * x[2]
        x_rows += col.to(tl.int64) * x[3]
    return x_rows, row, col


@triton.jit
def sum_by_taps(
    acc,
    x,
    weight_ptr,
    sizes,
    origin,
    part,
    window: tl.constexpr,
    IN_PLACE: tl.constexpr,
    PADDED: tl.constexpr,
    MULTIPLE: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Add one of PARTS parts of a tile's sums; a step is a block of channels of one tap.

    Args:
        acc: (BLOCK_M, BLOCK_N).
        x: pointer and strides.
        weight_ptr: (filters, taps_h, taps_w, depth).
        sizes: as above.
        origin: the tile's first pixel in the result, and its first filter.
        part: which part.
        window: as above.
        IN_PLACE: the result's pixels are those of x, one after another.
        PADDED: taps reach beyond the image.
        MULTIPLE: divides depth and strides.
        BLOCK_K: channels of a step.
        PARTS: in all.
    """
    TAPS_W: tl.constexpr = window[1]
    FULL: tl.constexpr = MULTIPLE % BLOCK_K == 0
    _, height, width, depth, filters, _, _ = sizes
    pixel = origin[0] + tl.arange(0, acc.shape[0])[:, None]
    x_rows, row, col = pixel_rows(x, sizes, pixel, window, IN_PLACE)
    length = window[0] * TAPS_W * depth
    # Offsets of 32 bits from where the tile begins: of 64 they cost more registers.
    n = tl.minimum(tl.arange(0, acc.shape[1]), filters - 1 - origin[1])[None, :]
    w_cols = weight_ptr + origin[1].to(tl.int64) * length + n * length
    k = tl.arange(0, BLOCK_K)
    blocks = tl.cdiv(depth, BLOCK_K)
    each = tl.cdiv(window[0] * TAPS_W * blocks, PARTS)
    first, last = part * each, tl.minimum(part * each + each, window[0] * TAPS_W * blocks)
    r, s, c = first // blocks // TAPS_W, first // blocks % TAPS_W, first % blocks * BLOCK_K
    for _ in range(first, last):
        down, across = r * window[6], s * window[7]
        x_block = x_rows + (down.to(tl.int64) * x[2] + across.to(tl.int64) * x[3] + c) + k[None, :]
        w_block = w_cols + ((r * TAPS_W + s) * depth + c) + k[:, None]
        left = k < depth - c
        there = within(row + down, height) & within(col + across, width)
        if FULL and not PADDED:
            tile_x = tl.load(x_block)
        elif FULL:
            tile_x = tl.load(x_block, mask=there, other=0.0)
        elif PADDED:
            tile_x = tl.load(x_block, mask=there & left[None, :], other=0.0)
        else:
            tile_x = tl.load(x_block, mask=left[None, :], other=0.0)
        tile_w = tl.load(w_block) if FULL else tl.load(w_block, mask=left[:, None], other=0.0)
        acc = tl.dot(tile_x, tile_w, acc)
        r, s, c = next_step(r, s, c, depth, TAPS_W, BLOCK_K)
    return acc


@triton.jit
def store_result(y_ptr, bias_ptr, sizes, origin, acc, RELU: tl.constexpr, GROUPS: tl.constexpr):
    """Add the bias, apply ReLU, round once, store; `filters` are those of one of GROUPS groups."""
    batch, _, _, _, filters, out_height, out_width = sizes
    m, n = tl.arange(0, acc.shape[0])[:, None], origin[1] + tl.arange(0, acc.shape[1])[None, :]
    if bias_ptr is not None:
        acc += tl.load(bias_ptr + n, mask=n < filters, other=0.0).to(tl.float32)
    if RELU:
        # Not maximum, which makes 0 of NaN.
        acc = tl.where(acc < 0, 0.0, acc)
    inside = (m < batch * out_height * out_width - origin[0]) & (n < filters)
    pitch = filters * GROUPS
    y_rows = y_ptr + origin[0].to(tl.int64) * pitch + m * pitch
    tl.store(y_rows + n, acc.to(y_ptr.dtype.element_ty), mask=inside)


FUSED, BIASED, PLAIN = "cudnn_convolution_relu", "cudnn_with_bias", "cudnn"
"""The names: with ReLU, with a bias, and with neither."""


@dataclass(frozen=True)
class Window:
    """Stride, padding and dilation of the windows, as pairs of (down, across)."""

    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    @classmethod
    def of(cls, stride: Any = 1, padding: Any = 0, dilation: Any = 1) -> Window:
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
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Give the options in the order in which PyTorch takes them."""
        return self.stride, self.padding, self.dilation

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
    """Refuse an x that is no image, groups, a weight or a bias that do not fit."""
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


@dataclass(frozen=True)
class Made:
    """A tensor that the vendor has computed for a launch; a call copies it to the kernel's output.

    A race does not time the copy: public functions return the tensor itself.

    Attributes:
        tensor: what was computed.
        output: where the kernel writes the same, in the same axes.
    """

    tensor: torch.Tensor
    output: torch.Tensor

    def __call__(self) -> None:
        """Copy the tensor to the output."""
        self.output.copy_(self.tensor)


@of_own_dtype
def convolve(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    window: Window,
    groups: int,
    relu: bool,
) -> torch.Tensor:
    """Compute a convolution by cuDNN, from and to `torch.channels_last`."""
    last = torch.channels_last
    x, weight = (tensor.contiguous(memory_format=last) for tensor in (x, weight))
    fused = torch.cudnn_convolution_relu if relu else torch.nn.functional.conv2d
    return fused(x, weight, bias, *window.pairs, groups).contiguous(memory_format=last)


def launch(given: Mapping[str, Any]) -> Made:
    """Call cuDNN with a launch's arguments by name."""
    weight = given["weight_ptr"].permute(0, 3, 1, 2)
    options = window_of(given), given["GROUPS"], bool(given["RELU"])
    y = convolve(given["x_ptr"], weight, given["bias_ptr"], *options)
    return Made(y, given["y_ptr"].permute(0, 3, 1, 2))


def window_of(given: Mapping[str, Any]) -> Window:
    """Return the window of a launch's arguments by name."""
    pairs = ((given[f"{name}_H"], given[f"{name}_W"]) for name in ("STRIDE", "PAD", "DILATION"))
    return Window(*pairs)


def gradients(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    window: Window,
    groups: int,
    needed: Sequence[bool],
) -> tuple[torch.Tensor | None, ...]:
    """Compute the gradients of image and weights by cuDNN, from and to `torch.channels_last`.

    Kernels of asmtune's own were slower at every layer that was timed on an H200. `needed` says
    which gradients are: the tensor of another gives its shape alone, and is not copied.
    """
    x, weight = _laid_out(x, needed[1]), _laid_out(weight, needed[0])
    backward = torch.ops.aten.convolution_backward
    made = backward(dy, x, weight, None, *window.pairs, False, (0, 0), groups, [*needed, False])
    return tuple(None if one is None else _laid_out(one, True) for one in made[:2])


@contextmanager
def in_fixed_order() -> Iterator[None]:
    """Let cuDNN add up in one order in the body; PyTorch has one setting for all threads."""
    before = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = True
    try:
        yield
    finally:
        torch.backends.cudnn.deterministic = before


def _laid_out(tensor: torch.Tensor, is_read: bool) -> torch.Tensor:
    """Return a tensor in `torch.channels_last`; one that is not read is not copied to it."""
    if is_read or tensor.is_contiguous(memory_format=torch.channels_last):
        return tensor.contiguous(memory_format=torch.channels_last)
    return torch.empty_like(tensor, memory_format=torch.channels_last)
