"""Attention: softmax(q k^T scale) v, forward, with the sums that backward needs.

Each program keeps a block of queries, walks over the keys that these may see, and never
writes a score: a running maximum and sum rescale what it has when a higher score comes.
Blocks of keys without a mask are walked apart from those on the causal diagonal, at a
window's edge or at the end; where the sizes divide, no mask is left. A mask of scores is
loaded tile by tile beside the keys, and never copied for heads or batches that share it.
Three more variants were tried on an H200 and are not here. The copy engine (TMA) lost at eight
shapes of nine; a sum over values a block behind the scores never won; Triton 3.6 compiled
specialized warps to wrong results.

Shapes: q is (batch, heads, queries, dim), k and v (batch, key heads, keys, dim); dim is a multiple
of 8 up to 256, in fp32 up to 128; the key heads divide the heads, and each serves neighbours.
A tile has the next power of 2 of columns, whose products are computed as well.
Dtypes: fp16, bf16, fp32 (multiplied as tf32), the same for all; softmax in fp32.
Layout: any strides; what does not lie in rows at multiples of 16 bytes is copied.
Source: Dao, FlashAttention-2, arXiv:2307.08691; Triton's tutorial 06.
Backward: `attention_backward`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import triton
import triton.language as tl
from torch.compiler import is_dynamo_compiling

from asmtune.core.config import Config
from asmtune.core.space.space import Space
from asmtune.kernels import _attention_host as host
from asmtune.kernels import _attention_spec as exact
from asmtune.kernels._attention import (
    at_head,
    key_limit,
    key_spans,
    load_rows,
    place,
    row_stride,
    store_rows,
    walk_spans,
)
from asmtune.kernels._attention_host import Attending, Window
from asmtune.kernels._attention_spec import cudnn, flash, has_vendor, in_place, of_queries
from asmtune.kernels._common import (
    beside,
    doubled,
    gluon_in_place,
    is_expanded,
    is_hopper,
    problems,
    tuners,
)
from asmtune.kernels.attention_backward import attention_backward, by_two_launches
from asmtune.runtime.options import is_deterministic
from asmtune.runtime.replay_calls import replay_calls

_PLAIN = (
    *("heads", "H", "GROUP", "M", "N", "window", "ahead", "seed", "threshold"),
    *(f"stride_{name}{axis}" for name in ("q", "k", "v", "y", "mask") for axis in "bhr"),
)


@triton.jit(do_not_specialize=_PLAIN)
def kernel(
    q_ptr, k_ptr, v_ptr, padding_ptr, y_ptr, lse_ptr,
    heads, H, GROUP, M, N, window, scale, seed, threshold, boost,
    stride_qb, stride_qh, stride_qr, stride_kb, stride_kh, stride_kr,
    stride_vb, stride_vh, stride_vr, stride_yb, stride_yh, stride_yr,
    mask_ptr, stride_maskb, stride_maskh, stride_maskr, ahead,
    D: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, PADDING: tl.constexpr,
    MASK: tl.constexpr, DROPOUT: tl.constexpr, MULTIPLE: tl.constexpr, DENSE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Attend for BLOCK_M queries of one head a program."""
    MASKED: tl.constexpr = CAUSAL or WINDOWED or PADDING + MASK > 0 or MULTIPLE % BLOCK_N != 0
    EVEN: tl.constexpr = MULTIPLE % BLOCK_M == 0
    blocks = tl.cdiv(M, BLOCK_M)
    block, head = place(blocks, heads, CAUSAL)
    if CAUSAL:
        block = blocks - 1 - block
    first = block * BLOCK_M
    batch, row = (head // H).to(tl.int64), head.to(tl.int64) * M
    own, shared = (head % H).to(tl.int64), (head % H // GROUP).to(tl.int64)
    m = first + tl.arange(0, BLOCK_M)
    q_ptr = at_head(q_ptr, batch, own, stride_qb, stride_qh)
    y_ptr = at_head(y_ptr, batch, own, stride_yb, stride_yh)
    k_ptr = at_head(k_ptr, batch, shared, stride_kb, stride_kh)
    v_ptr = at_head(v_ptr, batch, shared, stride_vb, stride_vh)
    keys = (k_ptr, row_stride(stride_kr, k_ptr, D, DENSE))
    values = (v_ptr, row_stride(stride_vr, v_ptr, D, DENSE))
    q = load_rows(q_ptr, first, row_stride(stride_qr, q_ptr, D, DENSE), M, D, BLOCK_M, EVEN)
    limit = key_limit(padding_ptr, batch, N, PADDING)
    mask_ptr += batch * stride_maskb + own * stride_maskh
    masks = (limit, M, window, ahead, padding_ptr + batch * N, mask_ptr, stride_maskr)
    draw = (seed, threshold, row, tl.cdiv(N, 4), boost)
    spans = key_spans(first, masks, CAUSAL, WINDOWED, PADDING, MASK, BLOCK_M, BLOCK_N)
    acc, top, total = walk_spans(
        *(q, keys, values, m, spans, masks, draw, scale * 1.4426950408889634, BLOCK_M, D, BLOCK_N),
        *(CAUSAL, WINDOWED, PADDING, MASK, DROPOUT, MASKED),
    )
    # A query that sees no key has no sum.
    blind = total == 0.0
    y = tl.where(blind[:, None], 0.0, acc * (boost / total)[:, None])
    lse = tl.where(blind, float("inf"), top + tl.log2(total))
    store_rows(y_ptr, first, row_stride(stride_yr, y_ptr, D, DENSE), M, y, D, BLOCK_M, EVEN)
    tl.store(lse_ptr + row + m, lse, mask=m < M)


OUTPUTS = ("y_ptr", "lse_ptr")

DTYPES = host.DTYPES

SHAPES = host.SHAPES

DEFAULT = Config({"BLOCK_M": 64, "BLOCK_N": 64}, num_warps=4, num_stages=3)
"""The fastest, or within 1% of it, at nine shapes on an H200.

It does not fit where dim is over 128, nor in fp32 where it is over 64 and weights are dropped or
scores have a mask.
"""


def space() -> Space:
    """Build the space: blocks, warps and stages."""
    return of_queries(DEFAULT, 1)


def _grid(values: Mapping[str, Any]) -> tuple[int]:
    return (triton.cdiv(values["M"], values["BLOCK_M"]) * values["heads"],)


def inputs(shape: Mapping[str, int], dtype: str, device: str) -> dict[str, Any]:
    """Make random arguments of `attention` by name."""
    heads = exact.random_heads(shape, dtype, device, "q", "k", "v")
    return {**heads, "causal": bool(shape["causal"])}


def baseline(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> torch.Tensor:
    """Compute the kernel's result in PyTorch; `options` are those of `attention`."""
    return exact.attend(q, k, v, Attending(**options).checked("attention", q, k))[0]


def reference(arguments: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
    """Compute the result and the logarithms of the sums in float64 from a problem's arguments."""
    how = Attending(causal=arguments["CAUSAL"], scale=arguments["scale"])
    return exact.attend_by_heads(*doubled(arguments, "q_ptr", "k_ptr", "v_ptr"), how)


def _gradients(*values: Any, needed: tuple[bool, ...]) -> tuple[torch.Tensor, ...]:
    """Compute the gradients of queries, keys and values, or of queries alone.

    `replay_calls` does not see PyTorch's switch of deterministic algorithms. It is read here.
    """
    *given, gluon = values
    if not any(needed[1:3]):
        return by_two_launches(*given, keys=False)
    is_fixed = not is_dynamo_compiling() and is_deterministic()
    return attention_backward(*given, gluon and not is_fixed)


def _fits_hopper(heads: tuple[torch.Tensor, ...], how: Attending) -> bool:
    """Return whether the Gluon kernel for Hopper computes the same.

    The tuning key tells neither expanded tensors nor how far a window reaches to the right.
    """
    q = heads[0]
    fits = q.element_size() == 2 and q.shape[3] in (64, 128) and how.is_plain
    return fits and not any(map(is_expanded, heads)) and is_hopper(q.device)


def _whole(fused: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of the vendor's that computes `attention`."""

    def attend(q: Any, k: Any, v: Any, *, causal: bool = False, **options: Any) -> torch.Tensor:
        y: torch.Tensor = fused(q, k, v, causal, options.get("scale"), sums=False)[0]
        return y

    return attend


def _gluon(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False, **options: Any
) -> torch.Tensor:
    """Compute `attention` by the Gluon kernel for Hopper."""
    return _by_hopper(q, k, v, causal, options.get("scale"))


@replay_calls
def _by_hopper(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float | None
) -> torch.Tensor:
    from asmtune.kernels import _hopper_attention

    q, k, v = host.laid(q), host.laid(k), host.laid(v)
    y = torch.empty_like(q)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    _hopper_attention.attend(q, k, v, y, lse, causal=causal, scale=scale)
    return y


@replay_calls(
    backward=_gradients,
    gradients=("q", "k", "v"),
    alternatives={"flash": _whole(flash), "cudnn": _whole(cudnn), "gluon": _gluon},
)
def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    window: Window = None,
    padding: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    dropout: float = 0.0,
    seed: int = 0,
    scale: float | None = None,
    vendor: bool = True,
    gluon: bool = True,
) -> tuple[torch.Tensor, tuple[Any, ...]]:
    """Compute attention by the tuned kernels, with its gradients.

    Results repeat bit by bit; where the vendor's forward is called, as far as its do. Gradients of
    the Gluon kernel for Hopper do not repeat so. It is left out of the backward pass where launches
    choose deterministically, as under `torch.use_deterministic_algorithms`.

    Args:
        q: (batch, heads, queries, dim), of a dtype of DTYPES, on a GPU.
        k: (batch, key heads, keys, dim); the key heads divide the heads.
        v: as k.
        causal: query m sees keys up to m, as `scaled_dot_product_attention` has it:
            counted from the first of each, whatever their numbers.
        window: query m sees keys from m - window + 1 on: itself and window - 1 before it. With a
            pair (left, right) it sees keys from m - left to m + right; None for all on a side.
        padding: keys that exist: lengths (batch,) in int32 or int64, or a mask
            (batch, keys) of bool, True for keys to see. Lengths are faster: what is
            behind them is not read.
        mask: (batch, heads, queries, keys), each of these or 1, of any strides: bool, True for
            scores to keep, or fp32 or q's dtype, added to the scaled scores. It gets no
            gradient. Values below -2.3e38, which leave fp32 as powers of 2, are -inf.
        dropout: the share of weights to drop, from 0 to below 1; the others are
            divided by what is left.
        seed: draws the dropped weights: score n of row r (of all batches', heads' and queries'
            rows) takes word n % 4 of Philox 4x32-10 at counter r * ceil(keys / 4) + n // 4.
        scale: factor of the scores, above 0; 1 / sqrt(dim) if None.
        vendor: call FlashAttention-2 or cuDNN where tuning has found it faster, and while it has
            not; not backward.
        gluon: on Hopper call the Gluon kernel where tuning has found it faster, and that of
            `attention_backward`.

    Returns:
        A tensor of q's shape and dtype. A query that sees no key gives 0, and has no
        gradient; the same holds for one whose scores are all -inf. NaN or infinite values in keys
        that are not seen may show.

    Raises:
        ValueError: shapes, dtypes or devices differ, or an option is out of bounds.
    """
    host.check("attention", q, k, v)
    how = Attending(causal, window, padding, mask, dropout, seed, scale).checked("attention", q, k)
    q, k, v = host.laid(q), host.laid(k), host.laid(v)
    arguments = _arguments(q, k, v, how)
    y, lse = arguments["y_ptr"], arguments["lse_ptr"]
    if k.shape[2] == 0:
        y.zero_()
        lse.fill_(float("inf"))
    elif y.numel():
        choices = (_alone, _beside_gluon, _beside_vendor, _tuned)
        wanted = vendor and has_vendor(q, k, how), gluon and _fits_hopper((q, k, v), how)
        beside(choices, *wanted)[_grid](**arguments)
    saved = (q, k, v, y, lse, causal, window, padding, mask, dropout, seed, how.scale)
    return y, (*saved, gluon)


def _arguments(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, how: Attending) -> dict[str, Any]:
    """Give the launch's arguments by name, with room for the results."""
    y = torch.empty_like(q)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    tensors = {"q_ptr": q, "k_ptr": k, "v_ptr": v, "y_ptr": y, "lse_ptr": lse}
    sizes = host.sizes(q, k, how) | host.strides(q=q, k=k, v=v, y=y)
    return {**tensors, **host.mask_arguments(how, k, lse), **sizes}


def _problem_arguments(q: Any, k: Any, v: Any, causal: bool) -> dict[str, Any]:
    return _arguments(q, k, v, Attending(causal=causal).checked("attention", q, k))


problem = problems(kernel, "attention", inputs, _problem_arguments, _grid)
_launch_gluon = gluon_in_place(kernel, "_hopper_attention")
_alone, _beside_gluon, _beside_vendor, _tuned = tuners(
    kernel,
    # The first is called while a key is tuned: cuDNN's takes half the time on an H200.
    vendor={"cudnn": in_place(kernel, cudnn), "flash": in_place(kernel, flash)},
    gluon={"gluon": _launch_gluon},
    space=space,
    key=host.KEY,
)
