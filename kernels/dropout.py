"""Dropout with a mask from a seed: x / (1 - p) where an element is kept, 0 where it is not.

The mask is the seed's and the element's alone: element i takes word i % 4 of Philox 4x32-10
at counter i // 4, whatever the config, the dtype and the device. Backward draws it again,
so that nothing is stored for it.

Shapes: any. Dtypes: fp32, fp16, bf16; scaled in fp32.
Layout: any. Elements are numbered as they lie in memory where x has no gaps, and in
row-major order where it has.
Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011; Triton's
tutorial 04. One counter serves four elements here: Philox, some 60 integer instructions,
would otherwise take longer than the memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.core.dtypes import torch_dtype
from asmtune.core.keys.buckets import pow2
from asmtune.kernels._common import (
    FLOATS,
    check_tensors,
    dense,
    flat_grid,
    flat_space,
    once_differentiable,
    problems,
)
from asmtune.runtime.decorator import asm_autotune


@triton.jit
def random_words(seed, first, BLOCK: tl.constexpr):
    """Draw the words of elements 4 * first to 4 * first + BLOCK - 1, in 31 bits each."""
    w0, w1, w2, w3 = tl.randint4x(seed, first + tl.arange(0, BLOCK // 4))
    words = tl.interleave(tl.interleave(w0, w2), tl.interleave(w1, w3))
    return (words.to(tl.uint32, bitcast=True) >> 1).to(tl.int32)


@triton.jit(do_not_specialize=["n", "seed", "threshold"])
def kernel(x_ptr, y_ptr, n, seed, threshold, scale, BLOCK: tl.constexpr):
    """Scale BLOCK elements a program; keep those whose words reach the threshold."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    at = start + tl.arange(0, BLOCK)
    keep = random_words(seed, start // 4, BLOCK) >= threshold
    if start + BLOCK <= n:
        y = tl.where(keep, tl.load(x_ptr + at).to(tl.float32) * scale, 0.0)
        tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty))
    else:
        x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
        y = tl.where(keep, x * scale, 0.0)
        tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=at < n)


OUTPUTS = ("y_ptr",)

DTYPES = FLOATS

SHAPES = ({"n": 1_048_576}, {"n": 1 << 26}, {"n": 98_432}, {"n": 10_000_019})

DEFAULT = Config({"BLOCK": 1024}, num_warps=4)
"""Eight elements a thread, two counters."""

space = partial(flat_space, DEFAULT, (128, 256, 512, 1024, 2048, 4096), 32)


def inputs(shape: Mapping[str, int], dtype: str, device: str) -> dict[str, Any]:
    """Make random arguments of `dropout` by name; half of the elements are dropped."""
    x = torch.randn(shape["n"], device=device).to(torch_dtype(dtype))
    return {"x": x, "p": 0.5, "seed": 123}


def baseline(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """Compute the kernel's result in PyTorch, for x without gaps."""
    counts = torch.arange(triton.cdiv(x.numel(), 4), device=x.device)
    words = torch.stack(philox(counts, seed), 1).reshape(-1)[: x.numel()]
    keep = (words >> 1 >= _threshold(p)).view(x.shape)
    return torch.where(keep, x / (1.0 - p), 0.0)


def philox(counter: torch.Tensor, seed: int) -> list[torch.Tensor]:
    """Compute the four words of each counter after ten rounds, as integers below 2**32."""
    low32 = 0xFFFFFFFF
    words = [counter & low32, counter >> 32, *[torch.zeros_like(counter)] * 2]
    keys = [seed & low32, seed >> 32]
    for _ in range(10):
        left, right = _product(words[0], 0xD2511F53), _product(words[2], 0xCD9E8D57)
        words = [right[0] ^ words[1] ^ keys[0], right[1], left[0] ^ words[3] ^ keys[1], left[1]]
        keys = [(keys[0] + 0x9E3779B9) & low32, (keys[1] + 0xBB67AE85) & low32]
    return words


def _product(words: torch.Tensor, factor: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Split a product of 32-bit numbers into its high and low 32 bits; int64 cannot hold it."""
    low, high = words * (factor & 0xFFFF), words * (factor >> 16)
    middle = (low >> 16) + high
    return middle >> 16, ((middle & 0xFFFF) << 16) | (low & 0xFFFF)


def reference(arguments: Mapping[str, Any]) -> torch.Tensor:
    """Compute the result in float64 from a problem's arguments."""
    p = 1.0 - 1.0 / arguments["scale"]
    return baseline(arguments["x_ptr"].double(), p, arguments["seed"])


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
        y = _dropped(x, p, seed)
        ctx.p, ctx.seed, ctx.stride = p, seed, y.stride()
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        # In the layout in which the elements were numbered, whatever autograd's is.
        like = torch.empty_strided(grad.shape, ctx.stride, dtype=grad.dtype, device=grad.device)
        same = grad if grad.stride() == ctx.stride else like.copy_(grad)
        return _dropped(same, ctx.p, ctx.seed), None, None


def dropout(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """Compute dropout by the tuned kernel, with its gradient.

    Args:
        x: tensor of a dtype of DTYPES, on a GPU, of any shape and layout.
        p: the share to drop, from 0 to 1; it is met to one part in 2**31.
        seed: seed of the mask.

    Returns:
        A tensor of x's shape and dtype. Dropped elements are 0, even NaN or infinite ones.

    Raises:
        ValueError: the dtype, p or the seed is not one of those.
    """
    check_tensors("dropout", {"x": x}, DTYPES)
    if not (isinstance(p, int | float) and 0.0 <= p <= 1.0):
        raise ValueError(f"dropout: p is {p}; it must lie between 0 and 1")
    if not (isinstance(seed, int) and 0 <= seed < 1 << 63):
        raise ValueError(f"dropout: seed is {seed}; it must lie between 0 and 2**63 - 1, an int")
    dropped: torch.Tensor = _Dropout.apply(x, p, seed)
    return dropped


def _dropped(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    if _threshold(p) == 1 << 31:
        return dense(x)[0].zero_()
    arguments = _arguments(x, p, seed)
    if x.numel():
        _tuned[flat_grid](**arguments)
    return arguments["y_ptr"]


def _threshold(p: float) -> int:
    return round(p * (1 << 31))


def _arguments(x: torch.Tensor, p: float, seed: int) -> dict[str, Any]:
    """Give the launch's arguments by name, with room for the result."""
    y, (x,) = dense(x)
    tensors = {"x_ptr": x, "y_ptr": y, "n": x.numel()}
    return {**tensors, "seed": seed, "threshold": _threshold(p), "scale": 1.0 / (1.0 - p)}


problem = problems(kernel, "dropout", inputs, _arguments, flat_grid)
_tuned = asm_autotune(space=space, key=[pow2("n")])(kernel)
