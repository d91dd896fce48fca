"""Device functions of the convolution: pixels of a tile, sums over taps and channels, the result.

`window` is (taps_h, taps_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w), `x` a
pointer and the strides of images, rows and columns, `sizes` (batch, height, width, depth,
filters, out_height, out_width), where depth is how many channels a tap has.
"""

from __future__ import annotations

import triton
import triton.language as tl


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


_NUMBERS = [
    *("height", "width", "channels", "rows", "cols", "top", "left"),
    *("stride_n", "stride_h", "stride_w", "stride_c"),
]


@triton.jit(do_not_specialize=_NUMBERS)
def frame(
    x_ptr,
    y_ptr,
    height,
    width,
    channels,
    rows,
    cols,
    top,
    left,
    stride_n,
    stride_h,
    stride_w,
    stride_c,
    PITCH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Copy images into larger ones of zeros, (.., rows, cols, PITCH) without gaps, in one pass.

    PyTorch's pad fills all of it first, and then copies element by element.
    """
    size = rows * cols * PITCH
    blocks = tl.cdiv(size, BLOCK)
    image = (tl.program_id(0) // blocks).to(tl.int64)
    at = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    c, row, col = at % PITCH, at // PITCH // cols - top, at // PITCH % cols - left
    there = within(row, height) & within(col, width) & (c < channels)
    x = x_ptr + image * stride_n + row.to(tl.int64) * stride_h + col.to(tl.int64) * stride_w
    values = tl.load(x + c.to(tl.int64) * stride_c, mask=there, other=0.0)
    tl.store(y_ptr + image * size + at, values, mask=at < size)
