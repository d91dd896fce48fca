"""Attention backward, the gradients of queries, keys and values in one launch.

Programs are of two kinds. Those of keys keep a block of keys and walk over the queries that see
them, those of queries keep queries and walk over keys: seven products a pair of blocks. Nothing is
added in memory, so that results repeat bit by bit. Programs of keys come first, since theirs are
four products of the seven; they compute the sums of dy * y anew, in place of a launch before.

The launch is timed beside functions that make the same three gradients: `apart` is the kernels
`attention_backward_q` and `attention_backward_kv`, `flash` and `cudnn` are the vendor's, and
`gluon` is the kernel for Hopper. Those but `apart` add in an order that changes.

Shapes: dy, q and y are (batch, heads, queries, dim), k and v (batch, key heads, keys, dim),
lse is (batch, heads, queries): logarithms to base 2, as `attention` keeps them.
Dtypes: fp16, bf16, the same for all but lse, which is fp32; `apart` takes fp32 as well.
Layout: any strides; what does not lie in rows at multiples of 16 bytes, or is expanded, is copied.
Errors: ValueError where shapes, dtypes or devices differ, or an option is out of bounds.
Source: Dao, FlashAttention-2, arXiv:2307.08691; Triton's tutorial 06.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import triton
import triton.language as tl
from torch.compiler import is_dynamo_compiling

from asmtune.core.config import Config
from asmtune.core.keys.buckets import pow2
from asmtune.core.space.space import Space
from asmtune.kernels import _attention_host as host
from asmtune.kernels import _attention_reference as exact
from asmtune.kernels import attention_backward_kv, attention_backward_q
from asmtune.kernels._attention_backward_whole import of_keys, of_queries
from asmtune.kernels._attention_host import Attending, Window
from asmtune.kernels._attention_reference import (
    cudnn_gradients,
    dense_heads,
    flash_gradients,
    gradients_in_place,
    has_vendor,
    plain_arguments,
)
from asmtune.kernels._attention_space import of_both
from asmtune.kernels._common import (
    beside,
    by_name,
    doubled,
    gluon_in_place,
    is_hopper,
    problems,
    tuners,
)
from asmtune.runtime.replay_calls import replay_calls

KEY = ("D", "CAUSAL", "MULTIPLE", "DENSE", "GROUP", pow2("heads"), pow2("M"), pow2("N"))
"""The tuning key: a config is chosen for each combination of these."""

_HEADS = ("q", "k", "v", "dy", "y", "dq", "dk", "dv")
_PLAIN = (
    *("heads", "H", "M", "N"),
    *(f"stride_{name}{axis}" for name in _HEADS for axis in "bhr"),
)


@triton.jit(do_not_specialize=_PLAIN)
def kernel(
    dy_ptr, q_ptr, k_ptr, v_ptr, y_ptr, lse_ptr, dq_ptr, dk_ptr, dv_ptr,
    heads, H, M, N, scale,
    stride_qb, stride_qh, stride_qr, stride_kb, stride_kh, stride_kr,
    stride_vb, stride_vh, stride_vr, stride_dyb, stride_dyh, stride_dyr,
    stride_yb, stride_yh, stride_yr, stride_dqb, stride_dqh, stride_dqr,
    stride_dkb, stride_dkh, stride_dkr, stride_dvb, stride_dvh, stride_dvr,
    D: tl.constexpr, CAUSAL: tl.constexpr, GROUP: tl.constexpr, MULTIPLE: tl.constexpr,
    DENSE: tl.constexpr, HELD: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Compute gradients of HELD keys of a key head, or HELD queries of a head, a program."""
    EVEN: tl.constexpr = MULTIPLE % HELD == 0
    ENDED: tl.constexpr = MULTIPLE % STEP != 0
    q = (q_ptr, stride_qb, stride_qh, stride_qr)
    k = (k_ptr, stride_kb, stride_kh, stride_kr)
    v = (v_ptr, stride_vb, stride_vh, stride_vr)
    dy = (dy_ptr, stride_dyb, stride_dyh, stride_dyr)
    y = (y_ptr, stride_yb, stride_yh, stride_yr)
    sizes = (heads, H, M, N)
    pid = tl.program_id(0)
    programs = tl.cdiv(N, HELD) * (heads // GROUP)
    if pid < programs:
        dk = (dk_ptr, stride_dkb, stride_dkh, stride_dkr)
        dv = (dv_ptr, stride_dvb, stride_dvh, stride_dvr)
        of_keys(
            *(pid, q, k, v, dy, y, lse_ptr, dk, dv, sizes, scale),
            *(D, CAUSAL, GROUP, DENSE, EVEN, ENDED, HELD, STEP),
        )
    else:
        dq = (dq_ptr, stride_dqb, stride_dqh, stride_dqr)
        of_queries(
            *(pid - programs, q, k, v, dy, y, lse_ptr, dq, sizes, scale),
            *(D, CAUSAL, GROUP, DENSE, EVEN, ENDED, HELD, STEP),
        )


OUTPUTS = ("dq_ptr", "dk_ptr", "dv_ptr")

DTYPES = ("fp16", "bf16")

SHAPES = host.BACKWARD_SHAPES

DEFAULT = Config({"HELD": 64, "STEP": 32}, num_warps=4, num_stages=2)
"""Defaults of the kernels of `apart`; not timed."""


def space() -> Space:
    """Build the space: blocks, warps and stages."""
    return of_both(DEFAULT)


def _grid(values: Mapping[str, Any]) -> tuple[int]:
    keys, queries = (triton.cdiv(values[name], values["HELD"]) for name in "NM")
    return (keys * (values["heads"] // values["GROUP"]) + queries * values["heads"],)


def inputs(shape: Mapping[str, int], dtype: str, device: str) -> dict[str, Any]:
    """Make random arguments of `attention_backward` by name."""
    given, how = exact.backward_inputs(shape, dtype, device)
    del given["delta"]
    return {**given, "causal": how.causal}


def baseline(
    dy: Any, q: Any, k: Any, v: Any, y: Any, lse: Any, *options: Any, **named: Any
) -> tuple[torch.Tensor, ...]:
    """Compute the kernel's result in PyTorch; options are those of `attention_backward`."""
    how = Attending(*options, **named).checked("attention_backward", q, k)
    dq, dk, dv = exact.differentiate(dy, q, k, v, lse, (dy * y).sum(-1), how)
    return dq, host.summed(dk, k), host.summed(dv, v)


def reference(arguments: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
    """Compute the gradients in float64 from a problem's arguments."""
    names = ("dy_ptr", "q_ptr", "k_ptr", "v_ptr", "y_ptr", "lse_ptr")
    return baseline(*doubled(arguments, *names), arguments["CAUSAL"], scale=arguments["scale"])


def _arguments(*, how: Attending, **given: torch.Tensor) -> dict[str, Any]:
    """Give the launch's arguments by name, with room for the results."""
    q, k = given["q"], given["k"]
    every = given | {f"d{name}": torch.empty_like(given[name]) for name in "qkv"}
    tensors = {f"{name}_ptr": tensor for name, tensor in every.items()}
    heads = {name: tensor for name, tensor in every.items() if name != "lse"}
    sizes = host.sizes(q, k, how)
    names = ("heads", "H", "GROUP", "M", "N", "scale", "D", "CAUSAL", "MULTIPLE")
    return {**tensors, **{name: sizes[name] for name in names}, **host.strides(**heads)}


def _made_apart(given: dict[str, Any]) -> Callable[[], None]:
    """Launch the two kernels of queries and of keys with the arguments of this kernel.

    Return what copies the sums of heads that share keys, which a race does not time.
    """
    wanted = {name: given[f"{name}_ptr"] for name in ("dk", "dv")}
    rooms = {name: host.room_for_heads(given["q_ptr"], room) for name, room in wanted.items()}
    given |= {f"{name}_ptr": room for name, room in rooms.items()}
    given |= host.strides(**{name: given[f"{name}_ptr"] for name in _HEADS})
    lse = given["lse_ptr"]
    given |= {"padding_ptr": lse, "mask_ptr": lse, "delta_ptr": torch.empty_like(lse)}
    given |= {"window": 0, "ahead": None, "seed": 0, "threshold": 0, "boost": 1.0}
    given |= {"WINDOWED": False, "PADDING": 0, "MASK": 0, "DROPOUT": False}
    given |= {f"stride_mask{axis}": 0 for axis in "bhr"}
    for module in (attention_backward_q, attention_backward_kv):
        names = [name for name in module.kernel.arg_names if name in given]
        module._tuned[module._grid](**{name: given[name] for name in names})
    made = {name: host.summed(room, wanted[name]) for name, room in rooms.items()}

    def copy() -> None:
        for name, sums in made.items():
            wanted[name].copy_(sums)

    return copy


def _whole(made_by: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that computes `attention_backward` by one of heads, mask and scale."""
    return lambda *values: made_by(*plain_arguments(*values))


def _gluon(*values: Any) -> tuple[torch.Tensor, ...]:
    """Compute the gradients by the Gluon kernel for Hopper."""
    from asmtune.kernels import _hopper_attention_backward

    *heads, causal, scale = values
    return _hopper_attention_backward.gradients(*heads, causal=causal, scale=scale)


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
    gluon: bool = True,  # noqa: ARG001
    keys: bool = True,
) -> tuple[torch.Tensor, ...]:
    """Compute `attention_backward` by the kernels of queries and, if wanted, of keys."""
    how = Attending(causal, window, padding, mask, dropout, seed, scale)
    dq, delta = attention_backward_q.attention_backward_q(dy, q, k, v, y, lse, how)
    if not keys:
        return (dq,)
    dk, dv = attention_backward_kv.attention_backward_kv(dy, q, k, v, lse, delta, how)
    return dq, dk, dv


apart = replay_calls(_two_launches)


_BY_OTHERS = {"flash": flash_gradients, "cudnn": cudnn_gradients, "gluon": _gluon}


@replay_calls(alternatives={"apart": apart, **{n: _whole(f) for n, f in _BY_OTHERS.items()}})
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
    gluon: bool = True,
) -> tuple[torch.Tensor, ...]:
    """Compute the gradients of `attention`'s queries, keys and values by the fastest way.

    Windows, padding, masks, dropout and fp32 take the two kernels of queries and of keys, as does
    `torch.compile`, which calls no alternative. Without the vendor's functions and the Gluon
    kernel results repeat bit by bit.

    Args:
        dy: (batch, heads, queries, dim), the gradient of the result, on a GPU.
        q: of the same shape, of a dtype of DTYPES or fp32, which all but lse have.
        k: (batch, key heads, keys, dim).
        v: as k.
        y: as q, the result.
        lse: (batch, heads, queries) in fp32, logarithms to base 2 of the sums of powers.
        causal: this and what follows up to the scale are the options of `attention`.
        window: see there.
        padding: see there.
        mask: see there.
        dropout: see there.
        seed: see there.
        scale: see there.
        vendor: call FlashAttention-2 or cuDNN where tuning has found it faster.
        gluon: on Hopper call the Gluon kernel where tuning has found it faster.

    Returns:
        The gradients of q, k and v, of their dtype.

    Raises:
        ValueError: shapes, dtypes or devices differ, or an option is out of bounds.
    """
    heads = {"dy": dy, "q": q, "k": k, "v": v, "y": y}
    how = Attending(causal, window, padding, mask, dropout, seed, scale)
    how = host.check_backward("attention_backward", heads, {"lse": lse}, how)
    is_one = how.is_plain and q.element_size() == 2 and q.numel() * k.numel() > 0
    if not is_one or is_dynamo_compiling():
        given = (dy, q, k, v, y, lse)
        return _two_launches(*given, causal, window, padding, mask, dropout, seed, scale)
    laid = {name: dense_heads(x) for name, x in heads.items()}
    arguments = _arguments(**laid, lse=lse.contiguous(), how=how)
    wanted = vendor and has_vendor(q, k, how), gluon and fits_hopper(q, how)
    beside((_alone, _beside_gluon, _beside_vendor, _tuned), *wanted)[_grid](**arguments)
    return tuple(arguments[name] for name in OUTPUTS)


def fits_hopper(q: torch.Tensor, how: Attending) -> bool:
    """Return whether the Gluon kernel for Hopper computes the same."""
    fits = q.element_size() == 2 and q.shape[3] in (64, 128) and how.is_plain
    return fits and is_hopper(q.device)


def _problem_arguments(*, causal: bool, **given: torch.Tensor) -> dict[str, Any]:
    how = Attending(causal=causal).checked("attention_backward", given["q"], given["k"])
    return _arguments(**given, how=how)


problem = problems(kernel, "attention_backward", inputs, _problem_arguments, _grid)
_launch_apart = by_name(kernel, _made_apart)
_launch_gluon = gluon_in_place(kernel, "_hopper_attention_backward")
_alone, _beside_gluon, _beside_vendor, _tuned = tuners(
    kernel,
    ours={"apart": _launch_apart},
    vendor={
        "flash": gradients_in_place(kernel, flash_gradients),
        "cudnn": gradients_in_place(kernel, cudnn_gradients),
    },
    gluon={"gluon": _launch_gluon},
    space=space,
    key=KEY,
)
