"""int8 maps read and written four pixels at a time, a 32-bit word each."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def signed_byte(words, PLACE: tl.constexpr):
    """Return one of the four signed bytes of each word."""
    return (words << (24 - 8 * PLACE)) >> 24


@triton.jit
def add_product(total, src0, src1, PLACE: tl.constexpr):
    """Add channels' products to a total, at one place of four in each word."""
    return total + tl.sum(signed_byte(src0, PLACE) * signed_byte(src1, PLACE), 0)


@triton.jit
def store_words(out_ptr, packed, word, shift, width, written):
    """Store four pixels at once where all are to be written, else those that are."""
    column = (word * 4) % width
    words_ptr = out_ptr.to(tl.pointer_type(tl.int32), bitcast=True)
    tl.store(words_ptr + word, packed, mask=written & (column >= shift))
    for place in tl.static_range(1, 4):
        some = written & (column < shift) & (column + place >= shift)
        tl.store(out_ptr + word * 4 + place, (packed >> (8 * place)).to(tl.int8), mask=some)


@triton.jit
def channels_from(start, TILE: tl.constexpr, WIDE: tl.constexpr):
    """Return TILE channels; WIDE: in 64 bits, as products with strides may need."""
    channel = (start + tl.arange(0, TILE))[:, None]
    return channel.to(tl.int64) if WIDE else channel


@triton.jit
def load_words(maps, channel, there, word, back):
    """Load words of src0, and of src1 `back` words before them, over the words before these."""
    src0_ptr, stride_0, src1_ptr, stride_1, _ = maps
    from_0 = src0_ptr.to(tl.pointer_type(tl.int32), bitcast=True) + channel * (stride_0 // 4)
    from_1 = src1_ptr.to(tl.pointer_type(tl.int32), bitcast=True) + channel * (stride_1 // 4)
    place = word - back
    src0 = tl.load(from_0 + word, mask=there, other=0)
    here = tl.load(from_1 + place, mask=there & (place >= 0), other=0)
    before = tl.load(from_1 + (place - 1), mask=there & (place >= 1), other=0)
    return src0, (here.to(tl.int64) << 32) | (before.to(tl.int64) & 0xFFFFFFFF)
