"""Attention backward, the gradients of queries, keys and values in one launch.

Programs are of two kinds. Those of keys keep a block of keys and walk over the queries that see
them, those of queries keep queries and walk over keys: seven products a pair of blocks. Nothing is
added in memory, so that results repeat bit by bit. Programs of keys come first, since theirs are
four products of the seven; they compute the sums of dy * y anew, in place of a launch before.

The launch is timed beside functions that make the same three gradients: `apart` is the kernels
`attention_backward_q` and `attention_backward_kv`, `flash` and `cudnn` are the vendor's, which add
in an order that changes.

Shapes: dy, q and y are (batch, heads, queries, dim), k and v (batch, key heads, keys, dim),
lse is (batch, heads, queries): logarithms to base 2, as `attention` keeps them.
Dtypes: fp16, bf16, the same for all but lse, which is fp32; `apart` takes fp32 as well.
Layout: any strides; what does not lie in rows at multiples of 16 bytes, or is expanded, is copied.
Errors: ValueError where shapes, dtypes or devices differ, or an option is out of bounds.
Source: Dao, FlashAttention-2, arXiv:2307.08691; Triton's tutorial 06.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
import triton
import triton.language as tl
from torch.compiler import is_dynamo_compiling

from asmtune.core.config import Config
from asmtune.core.keys.buckets import pow2
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from asmtune.kernels import _attention_host as host
from asmtune.kernels import _attention_reference as exact
from asmtune.kernels import attention_backward_kv as of_keys
from asmtune.kernels import attention_backward_q as of_queries
from asmtune.kernels._attention import (
    at_head,
    key_spans,
    load_rows,
    query_spans,
    row_stride,
    store_rows,
)
from asmtune.kernels._attention_backward import query_gradients
from asmtune.kernels._attention_backward_whole import key_part, place_item
from asmtune.kernels._attention_host import Attending, Window
from asmtune.kernels._attention_space import of_both
from asmtune.kernels._attention_vendor import (
    cudnn,
    cudnn_gradients,
    dense_heads,
    flash,
    flash_gradients,
    has_vendor,
)
from asmtune.kernels._common import check_shape, check_tensors
from asmtune.runtime.decorator import asm_autotune
from asmtune.runtime.prepared import prepared

KEY = ("D", "CAUSAL", "MULTIPLE", "DENSE", "GROUP", pow2("heads"), pow2("M"), pow2("N"))
"""The tuning key: a config is chosen for each combination of these."""

_HEADS = ("q", "k", "v", "dy", "y", "dq", "dk", "dv")
_PLAIN = (
    *("heads", "H", "GROUP", "M", "N"),
    *(f"stride_{name}{axis}" for name in _HEADS for axis in "bhr"),
)


@triton.jit(do_not_specialize=_PLAIN)
def kernel(
    dy_ptr, q_ptr, k_ptr, v_ptr, y_ptr, lse_ptr, dq_ptr, dk_ptr, dv_ptr,
    heads, H, GROUP, M, N, scale,
    stride_qb, stride_qh, stride_qr, stride_kb, stride_kh, stride_kr,
    stride_vb, stride_vh, stride_vr, stride_dyb, stride_dyh, stride_dyr,
    stride_yb, stride_yh, stride_yr, stride_dqb, stride_dqh, stride_dqr,
    stride_dkb, stride_dkh, stride_dkr, stride_dvb, stride_dvh, stride_dvr,
    D: tl.constexpr, CAUSAL: tl.constexpr, MULTIPLE: tl.constexpr, DENSE: tl.constexpr,
    HELD: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """HELD keys and one head of queries, or HELD queries, a program."""
    EVEN: tl.constexpr = MULTIPLE % HELD == 0
    ENDED: tl.constexpr = MULTIPLE % STEP != 0
    pid = tl.program_id(0)
    blocks = tl.cdiv(N, HELD)
    is_key = pid < blocks * heads
    item = pid
    if not is_key:
        item = pid - blocks * heads
        blocks = tl.cdiv(M, HELD)
    block, head = place_item(item, blocks, heads, CAUSAL)
    if CAUSAL:
        block = tl.where(is_key, block, blocks - 1 - block)
    first = block * HELD
    batch, row = (head // H).to(tl.int64), head.to(tl.int64) * M
    own, shared = (head % H).to(tl.int64), (head % H // GROUP).to(tl.int64)
    q_ptr = at_head(q_ptr, batch, own, stride_qb, stride_qh)
    dy_ptr = at_head(dy_ptr, batch, own, stride_dyb, stride_dyh)
    y_ptr = at_head(y_ptr, batch, own, stride_yb, stride_yh)
    k_ptr = at_head(k_ptr, batch, shared, stride_kb, stride_kh)
    v_ptr = at_head(v_ptr, batch, shared, stride_vb, stride_vh)
    step_q, step_y = row_stride(stride_qr, q_ptr, D, DENSE), row_stride(stride_yr, y_ptr, D, DENSE)
    step_dy = row_stride(stride_dyr, dy_ptr, D, DENSE)
    step_k, step_v = row_stride(stride_kr, k_ptr, D, DENSE), row_stride(stride_vr, v_ptr, D, DENSE)
    masks = (N, M, 0, None, lse_ptr, lse_ptr, 0)
    at = first + tl.arange(0, HELD)
    powers = scale * 1.4426950408889634
    if is_key:
        k = load_rows(k_ptr, first, step_k, N, D, HELD, EVEN)
        v = load_rows(v_ptr, first, step_v, N, D, HELD, EVEN)
        dk, dv = key_part(
            *(k, v, (q_ptr, step_q), (dy_ptr, step_dy), (y_ptr, step_y), lse_ptr + row, at),
            *(query_spans(first, masks, CAUSAL, False, 0, STEP, HELD), M, powers),
            *(D, HELD, STEP, CAUSAL, ENDED),
        )
        dk_ptr = at_head(dk_ptr, batch, own, stride_dkb, stride_dkh)
        dv_ptr = at_head(dv_ptr, batch, own, stride_dvb, stride_dvh)
        step_dk = row_stride(stride_dkr, dk_ptr, D, DENSE)
        step_dv = row_stride(stride_dvr, dv_ptr, D, DENSE)
        store_rows(dk_ptr, first, step_dk, N, dk * scale, D, HELD, EVEN)
        store_rows(dv_ptr, first, step_dv, N, dv, D, HELD, EVEN)
    else:
        q = load_rows(q_ptr, first, step_q, M, D, HELD, EVEN)
        dy = load_rows(dy_ptr, first, step_dy, M, D, HELD, EVEN)
        y = load_rows(y_ptr, first, step_y, M, D, HELD, EVEN)
        delta = tl.sum(dy.to(tl.float32) * y.to(tl.float32), 1)
        lse = tl.load(lse_ptr + row + at, mask=at < M, other=float("inf"))
        dq = query_gradients(
            *(q, dy, (lse, delta), (k_ptr, step_k), (v_ptr, step_v), at),
            *(key_spans(first, masks, CAUSAL, False, 0, 0, HELD, STEP), masks),
            *((0, 0, row, 0, 1.0), powers, HELD, D, STEP, CAUSAL, False, 0, 0, False),
            CAUSAL or ENDED,
        )
        dq_ptr = at_head(dq_ptr, batch, own, stride_dqb, stride_dqh)
        step_dq = row_stride(stride_dqr, dq_ptr, D, DENSE)
        store_rows(dq_ptr, first, step_dq, M, dq * scale, D, HELD, EVEN)


OUTPUTS = ("dq_ptr", "dk_ptr", "dv_ptr")

DTYPES = ("fp16", "bf16")

SHAPES = host.BACKWARD_SHAPES

DEFAULT = Config({"HELD": 64, "STEP": 32}, num_warps=4, num_stages=2)
"""What the kernels of `apart` take by default; not timed."""


def space() -> Space:
    """Build the space: blocks, warps and stages."""
    return of_both(DEFAULT)


def _grid(values: Mapping[str, Any]) -> tuple[int]:
    held = values["HELD"]
    return ((triton.cdiv(values["N"], held) + triton.cdiv(values["M"], held)) * values["heads"],)


def inputs(shape: Mapping[str, int], dtype: str, device: str) -> dict[str, Any]:
    """Make random arguments of `attention_backward` by name."""
    how = Attending(causal=bool(shape["causal"]))
    tensors = exact.random_heads(shape, dtype, device, "dy", "q", "k", "v")
    return {**tensors, **exact.forward_of(tensors, how), "causal": how.causal}


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random heads."""
    given = inputs(shape, dtype, device)
    how = Attending(given.pop("causal")).checked("attention_backward", given["q"], given["k"])
    return Problem(kernel, _arguments(given, how), _grid, shape, "attention_backward")


def baseline(
    dy: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    y: torch.Tensor,
    lse: torch.Tensor,
    causal: bool = False,
    window: Window = None,
    padding: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    dropout: float = 0.0,
    seed: int = 0,
    scale: float | None = None,
) -> tuple[torch.Tensor, ...]:
    """Compute the kernel's result in PyTorch."""
    how = Attending(causal, window, padding, mask, dropout, seed, scale)
    how = how.checked("attention_backward", q, k)
    dq, dk, dv = exact.differentiate(dy, q, k, v, lse, (dy * y).sum(-1), how)
    return dq, host.summed(dk, k), host.summed(dv, v)


def reference(arguments: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
    """Compute the gradients, each head of queries its own, in float64 from a problem's."""
    names = ("dy", "q", "k", "v", "y", "lse")
    dy, q, k, v, y, lse = (arguments[f"{name}_ptr"].double() for name in names)
    how = Attending(causal=arguments["CAUSAL"], scale=arguments["scale"])
    return exact.differentiate(dy, q, k, v, lse, (dy * y).sum(-1), how)


def _arguments(given: Mapping[str, torch.Tensor], how: Attending) -> dict[str, Any]:
    """Give the launch's arguments by name, with room for the results."""
    q, k = given["q"], given["k"]
    rooms = {f"d{name}": host.room_for_heads(q, given[name]) for name in "kv"}
    results = {"dq": torch.empty_like(q), **rooms}
    heads = {name: tensor for name, tensor in {**given, **results}.items() if name != "lse"}
    tensors = {f"{name}_ptr": tensor for name, tensor in {**given, **results}.items()}
    sizes = host.sizes(q, k, how)
    names = ("heads", "H", "GROUP", "M", "N", "scale", "D", "CAUSAL", "MULTIPLE")
    return {**tensors, **{name: sizes[name] for name in names}, **host.strides(**heads)}


def _given(values: tuple[Any, ...]) -> dict[str, Any]:
    """Name the arguments of a launch, which come in order."""
    return dict(zip(kernel.arg_names, values, strict=False))


def _launch_apart(*values: Any) -> None:
    """Launch the two kernels of queries and of keys with the arguments of this kernel."""
    given = _given(values)
    lse = given["lse_ptr"]
    given |= {"padding_ptr": lse, "mask_ptr": lse, "delta_ptr": torch.empty_like(lse)}
    given |= {"window": 0, "ahead": None, "seed": 0, "threshold": 0, "boost": 1.0}
    given |= {"WINDOWED": False, "PADDING": 0, "MASK": 0, "DROPOUT": False}
    given |= {f"stride_mask{axis}": 0 for axis in "bhr"}
    for module in (of_queries, of_keys):
        names = [name for name in module.kernel.arg_names if name in given]
        module._tuned[module._grid](**{name: given[name] for name in names})


def _launch_flash(*values: Any) -> Callable[[], None]:
    """Launch FlashAttention-2 with the arguments of this kernel."""
    return _by_vendor(flash_gradients, values)


def _launch_cudnn(*values: Any) -> Callable[[], None]:
    """Launch cuDNN with the arguments of this kernel."""
    return _by_vendor(cudnn_gradients, values)


def _by_vendor(gradients: Callable[..., Any], values: tuple[Any, ...]) -> Callable[[], None]:
    """Call the vendor; return what copies its results, which a race does not time."""
    given = _given(values)
    heads = (given[f"{name}_ptr"] for name in ("dy", "q", "k", "v", "y", "lse"))
    made = gradients(*heads, given["CAUSAL"], given["scale"])

    def copy() -> None:
        for name, gradient in zip(OUTPUTS, made, strict=True):
            given[name].copy_(gradient)

    return copy


def _two_launches(
    dy: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    y: torch.Tensor,
    lse: torch.Tensor,
    causal: bool = False,
    window: Window = None,
    padding: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    dropout: float = 0.0,
    seed: int = 0,
    scale: float | None = None,
    vendor: bool = True,  # noqa: ARG001
) -> tuple[torch.Tensor, ...]:
    """Compute `attention_backward` by the kernels of queries and of keys."""
    how = Attending(causal, window, padding, mask, dropout, seed, scale)
    dq, delta = of_queries.attention_backward_q(dy, q, k, v, y, lse, how)
    dk, dv = of_keys.attention_backward_kv(dy, q, k, v, lse, delta, how)
    return dq, dk, dv


_apart = prepared(_two_launches)


@prepared(alternatives={"apart": _apart, "flash": flash, "cudnn": cudnn})
def attention_backward(
    dy: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    y: torch.Tensor,
    lse: torch.Tensor,
    causal: bool = False,
    window: Window = None,
    padding: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    dropout: float = 0.0,
    seed: int = 0,
    scale: float | None = None,
    vendor: bool = True,
) -> tuple[torch.Tensor, ...]:
    """Compute the gradients of `attention`'s queries, keys and values by the fastest way.

    Windows, padding, masks, dropout and fp32 take the two kernels of queries and of keys, as does
    `torch.compile`, which calls no alternative. Without the vendor's functions results repeat bit
    by bit.

    Args:
        dy: (batch, heads, queries, dim), the gradient of the result, on a GPU.
        q: likewise, of a dtype of DTYPES or fp32, which all but lse have.
        k: (batch, key heads, keys, dim).
        v: as k.
        y: as q, the result.
        lse: (batch, heads, queries) in fp32, logarithms to base 2 of the sums of powers.
        causal: this and what follows are the options of the forward pass.
        window: likewise.
        padding: likewise.
        mask: likewise.
        dropout: likewise.
        seed: likewise.
        scale: likewise.
        vendor: call FlashAttention-2 or cuDNN where tuning has found it faster.

    Returns:
        The gradients of q, k and v, of their dtype.

    Raises:
        ValueError: shapes, dtypes or devices differ, or an option is out of bounds.
    """
    how = Attending(causal, window, padding, mask, dropout, seed, scale)
    how = _checked({"dy": dy, "q": q, "k": k, "v": v, "y": y}, lse, how)
    is_one = how.is_plain and q.element_size() == 2 and q.numel() * k.numel() > 0
    if not is_one or is_dynamo_compiling():
        given = (dy, q, k, v, y, lse)
        return _two_launches(*given, causal, window, padding, mask, dropout, seed, scale)
    heads = {name: dense_heads(x) for name, x in {"dy": dy, "q": q, "k": k, "v": v, "y": y}.items()}
    arguments = _arguments({**heads, "lse": lse.contiguous()}, how)
    (_tuned if vendor and has_vendor(q, k, how) else _alone)[_grid](**arguments)
    dk, dv = arguments["dk_ptr"], arguments["dv_ptr"]
    return arguments["dq_ptr"], host.summed(dk, k), host.summed(dv, v)


def _checked(heads: Mapping[str, torch.Tensor], lse: torch.Tensor, how: Attending) -> Attending:
    """Check tensors and options; return these with the scale filled in.

    Raises:
        ValueError: one does not fit.
    """
    what, q, k = "attention_backward", heads["q"], heads["k"]
    check_tensors(what, heads, host.DTYPES)
    check_tensors(what, {"lse": lse}, ("fp32",))
    host.check(what, q, k, heads["v"])
    for name in ("dy", "y"):
        check_shape(what, name, heads[name], q.shape)
    check_shape(what, "lse", lse, q.shape[:3])
    return how.checked(what, q, k)


_OURS: dict[str, Callable[..., Any]] = {"apart": _launch_apart}
_BY_VENDOR: dict[str, Callable[..., Any]] = {"flash": _launch_flash, "cudnn": _launch_cudnn}
_decorated = functools.partial(asm_autotune, space=space, key=KEY)
_tuned = _decorated(alternatives={**_OURS, **_BY_VENDOR})(kernel)
_alone = _decorated(alternatives=_OURS)(kernel)
