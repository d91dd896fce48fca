"""Attention backward in Gluon for Hopper: all gradients in one walk, of five products a block.

A program holds 128 keys of a key head. One warp loads these once, by the copy engine (TMA), and
fills rings of the queries and gradients that see them, of all heads that share the keys. Each of
two warpgroups has 64 of the keys. For a block of 64 queries it computes transposed scores, their
powers P and their gradients dS, and adds P dy and dS q to its sums in registers. Both leave dS in
shared memory: the gradient of the queries is a product over all 128 keys, of which each warpgroup
computes half of the columns, one block later, so that neither waits for the other's dS at once. The
copy engine adds it to fp32 in memory, in any order. On an H100, with heads of 128, additions by the
threads took 5% longer, and warpgroups that took turns at the products 40%.

The scores of the next block are in flight while the gradient of the queries is added, P dy while
dS is computed.

Barriers:

- `held`: keys, and then values and halves of the keys' columns, are there; used once.
- `q_full`, `dy_full` and `empty` of each stage. The loading warp arrives at both `full` and
  announces the bytes, at that of the queries once more when it has stored logarithms and sums of
  theirs. Both warpgroups arrive at `empty` once all their products of a block are done. A wait for
  use n of a stage waits for phase n of `full` and n - 1 of `empty`.
- `passed` of both buffers of dS: both warpgroups have stored block n's dS in buffer n % 2, and have
  read that of block n - 1, whose buffer block n + 1 takes. Before the first block comes one of
  zeros.
- `done` of each warpgroup: its gradients of keys and values lie where these were. The loading warp
  writes them to memory.

Launches before and after: sums of dy * y, and zeros to add to; then the gradient of queries is
scaled and rounded.

Shapes: q, y and dy are (batch, heads, queries, dim), k and v (batch, key heads, keys, dim); dim is
64 or 128.
Dtypes: fp16, bf16; sums in fp32, powers of 2.
Layout: dense rows at multiples of 16 bytes.
Source: Shah et al., FlashAttention-3, arXiv:2407.08608.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma_wait,
)

from asmtune.core.config import Config
from asmtune.core.keys.buckets import pow2
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from asmtune.kernels import _attention_host as host
from asmtune.kernels import _attention_spec as exact
from asmtune.kernels._attention_host import Attending
from asmtune.kernels._common import multiple, processors
from asmtune.kernels._hopper import (
    barriers_of,
    described,
    refuse_others,
    ring_of,
    set_block,
    tile_of,
)
from asmtune.kernels._hopper_attention_backward_walk import (
    ROWS,
    begin,
    finish,
    load_all,
    place_of,
    scores_of,
    walk,
)
from asmtune.kernels._hopper_attention_walk import shares_together
from asmtune.runtime.call_trace import sets_blocks
from asmtune.runtime.decorator import asm_autotune


@gluon.jit
def _differentiate(tiles, barriers, dq_desc, sizes, scale, WHO: gl.constexpr, FIXED: gl.constexpr):
    """Compute the gradients of this warpgroup's 64 keys, and its part of the queries'."""
    CAUSAL: gl.constexpr = FIXED[0]
    MULTIPLE: gl.constexpr = FIXED[1]
    ENDED: gl.constexpr = MULTIPLE % (2 * ROWS) != 0
    q_ring, k_tiles, v_tiles = tiles[0], tiles[2], tiles[3]
    q_full, _, _, held, _, done = barriers
    D: gl.constexpr = q_ring.shape[4]
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, ROWS, 16])
    ACC_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    _, KV, GROUP, _, N, _ = sizes
    share, first, start, end = place_of(sizes, CAUSAL)
    total = (end - start) * GROUP
    dk = gl.zeros([ROWS, D], gl.float32, ACC_LAYOUT)
    dv = gl.zeros([ROWS, D], gl.float32, ACC_LAYOUT)
    power = scale * 1.4426950408889634
    mbarrier.wait(held.index(0), 0)
    mbarrier.wait(held.index(1), 0)
    if total > 0:
        zero = gl.to_tensor(0)
        mbarrier.wait(q_full.index(0), 0)
        scores = scores_of(tile_of(k_tiles, WHO), q_ring, zero, LAYOUT)
        begin(tiles, barriers, WHO)
        batch, head = share // KV, share % KV * GROUP
        state = (dk, dv, scores, zero, (batch, head, start * ROWS))
        # Blocks that no key of the program sees whole come first.
        split = start
        if CAUSAL:
            split = gl.minimum(start + 2, end)
        if ENDED:
            split = gl.where(first + 2 * ROWS > N, end, split)
        for turn in range(GROUP):
            place = (first, batch, head + turn, total)
            if CAUSAL or ENDED:
                state = walk(
                    *(tiles, barriers, dq_desc, state, place, (start, split), N, power),
                    *(WHO, CAUSAL, True),
                )
            state = walk(
                *(tiles, barriers, dq_desc, state, place, (split, end), N, power),
                *(WHO, CAUSAL, False),
            )
        dk, dv, scores, count, before = state
        warpgroup_mma_wait(num_outstanding=0, deps=[scores])
        finish(tiles, barriers, dq_desc, count, before, WHO)
    # The scale again, which no register need hold.
    tile_of(k_tiles, WHO).store((dk * (power * 0.6931471805599453)).to(q_ring.dtype))
    tile_of(v_tiles, WHO).store(dv.to(q_ring.dtype))
    fence_async_shared()
    mbarrier.arrive(done.index(WHO), count=1)


@gluon.jit
def kernel(
    q_desc, dy_desc, k_desc, v_desc, half_desc, dk_desc, dv_desc, dq_desc, lse_ptr, delta_ptr,
    shares, KV, GROUP, M, N, together, scale,
    D: gl.constexpr,
    CAUSAL: gl.constexpr, MULTIPLE: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Compute the gradients of 128 keys of a key head, and what these add to the queries'."""
    DS_LAYOUT: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, ROWS], q_desc.dtype)
    ds_tiles = gl.allocate_shared_memory(q_desc.dtype, [4, ROWS, ROWS], DS_LAYOUT)
    q_ring, dy_ring = ring_of(q_desc, STAGES), ring_of(dy_desc, STAGES)
    k_tiles, v_tiles, half_tiles = ring_of(k_desc, 2), ring_of(v_desc, 2), ring_of(half_desc, 4)
    SUM_LAYOUT: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    lse_ring = gl.allocate_shared_memory(gl.float32, [STAGES, ROWS], SUM_LAYOUT)
    delta_ring = gl.allocate_shared_memory(gl.float32, [STAGES, ROWS], SUM_LAYOUT)
    tiles = (
        q_ring, dy_ring, k_tiles, v_tiles, half_tiles, ds_tiles, lse_ring, delta_ring,
        ring_of(dq_desc, 2),
    )  # fmt: skip
    barriers = (
        barriers_of(STAGES, 2),
        barriers_of(STAGES, 1),
        barriers_of(STAGES, 2),
        barriers_of(2, 1),
        barriers_of(2, 2),
        barriers_of(2, 1),
    )
    fence_async_shared()  # so that copies see the barriers
    sizes = (shares, KV, GROUP, M, N, together)
    FIXED: gl.constexpr = (CAUSAL, MULTIPLE)
    descs = (q_desc, dy_desc, k_desc, v_desc, half_desc, dk_desc, dv_desc)
    pointers = (lse_ptr, delta_ptr)
    gl.warp_specialize(
        [
            (_differentiate, (tiles, barriers, dq_desc, sizes, scale, 0, FIXED)),
            (_differentiate, (tiles, barriers, dq_desc, sizes, scale, 1, FIXED)),
            (load_all, (descs, tiles, barriers, pointers, sizes, CAUSAL)),
        ],
        [4, 1],
        [240, 24] if D == 128 else [232, 40],
    )


@triton.jit
def prepare(
    dy_ptr, y_ptr, delta_ptr, dq_ptr, rows, H, M,
    stride_dyb, stride_dyh, stride_dyr, stride_yb, stride_yh, stride_yr,
    D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sum dy * y of BLOCK rows, counted over all heads, and set the gradients of these to 0."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = (row < rows)[:, None]
    batch, head, m = (row // M // H).to(tl.int64), (row // M % H).to(tl.int64), row % M
    d = tl.arange(0, D)[None, :]
    dy_at = batch * stride_dyb + head * stride_dyh + m.to(tl.int64) * stride_dyr
    y_at = batch * stride_yb + head * stride_yh + m.to(tl.int64) * stride_yr
    dy = tl.load(dy_ptr + dy_at[:, None] + d, mask=there, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + y_at[:, None] + d, mask=there, other=0.0).to(tl.float32)
    tl.store(delta_ptr + row, tl.sum(dy * y, 1), mask=row < rows)
    at = dq_ptr + row.to(tl.int64)[:, None] * D + d
    tl.store(at, tl.zeros([BLOCK, D], tl.float32), mask=there)


OUTPUTS = ("dk_desc", "dv_desc", "dq_desc")

DTYPES = ("fp16", "bf16")

DIMS = (64, 128)

SHAPES = tuple(shape for shape in host.BACKWARD_SHAPES if shape["D"] in DIMS)

_REGISTERS = 168
"""Registers of a thread: 65536 over the warps, in units of 8."""
_SHARED = 226 * 1024
_L2_BYTES = 24 << 20
"""Queries and gradients that stay in L2 beside all else: half of an H100's."""
PREPARED = 32
"""Rows that a program of `prepare` has."""


@sets_blocks
def set_blocks(values: Mapping[str, Any]) -> None:
    """Set what a config's descriptors copy at a time: its `pre_hook`."""
    for name in ("q", "dy", "k", "v", "dk", "dv"):
        set_block(values[f"{name}_desc"], ROWS.value, values["D"])
    for name in ("half", "dq"):
        set_block(values[f"{name}_desc"], ROWS.value, values["D"] // 2)


def space() -> Space:
    """List stages of the rings."""
    configs = [
        Config({"STAGES": stages}, num_warps=4, maxnreg=_REGISTERS, pre_hook=set_blocks)
        for stages in (2, 3)
    ]
    return Space.from_configs(configs, default=configs[0]).where(
        "keys, values, gradients, and queries and dy in stages fit in shared memory", _fits_shared
    )


def _fits_shared(D: int, STAGES: int) -> bool:
    return 2 * ROWS.value * (D * (8 + 2 * STAGES) + 4 * ROWS.value) <= _SHARED


def grid(values: Mapping[str, Any]) -> tuple[int]:
    """Give the grid: a program for 128 keys of a key head."""
    return (triton.cdiv(values["N"], 2 * ROWS.value) * values["shares"],)


def arguments(
    given: Mapping[str, torch.Tensor], results: Mapping[str, torch.Tensor], *, causal: bool,
    scale: float,
) -> dict[str, Any]:  # fmt: skip
    """Give a launch's arguments by name.

    Args:
        given: q, k, v, dy, and lse and delta, (batch, heads, queries) in fp32.
        results: dk and dv, as k, and dq in fp32, dense, to which gradients of queries that are
            not scaled are added.
        causal: query m sees keys up to m.
        scale: factor of the scores.
    """
    q, k = given["q"], given["k"]
    (batches, heads, M, D), (shares, N) = q.shape, k.shape[1:3]
    group = heads // shares
    # A query and its gradients are 8 bytes a column.
    in_l2 = max(_L2_BYTES // (8 * M * D * group), 1)
    together = 1
    if causal:
        programs = processors(q.device)
        together = shares_together(batches * shares, (M * group, N), in_l2, programs)
    return {
        **{f"{name}_desc": described(given[name]) for name in ("q", "dy", "k", "v")},
        "half_desc": described(k),
        **{f"{name}_desc": described(results[name]) for name in ("dk", "dv", "dq")},
        "lse_ptr": given["lse"],
        "delta_ptr": given["delta"],
        "shares": batches * shares,
        "KV": shares,
        "GROUP": group,
        "M": M,
        "N": N,
        "together": together,
        "scale": scale,
        "D": D,
        "CAUSAL": causal,
        "MULTIPLE": min(multiple(M, N), 256),
    }


def gradients(
    given: Mapping[str, torch.Tensor], *, causal: bool, scale: float
) -> tuple[torch.Tensor, ...]:
    """Compute the gradients of q, k and v by the tuned kernel.

    `given` has dy, q, k, v, y, and lse: (batch, heads, queries), dense, logarithms to base 2.

    Raises:
        ValueError: the GPU, a dtype, the dim or a layout is not one that the kernel takes.
    """
    q = given["q"]
    if q.shape[-1] not in DIMS:
        raise ValueError(f"gradients: q is {tuple(q.shape)}; its dim must be one of {DIMS}")
    refuse_others("gradients", {name: given[name] for name in ("dy", "q", "k", "v", "y")})
    dk, dv = (torch.empty_like(given[name]) for name in "kv")
    sums, delta = prepared_sums(given["dy"], given["y"])
    made = {"dq": sums, "dk": dk, "dv": dv}
    tuned[grid](**arguments({**given, "delta": delta}, made, causal=causal, scale=scale))
    return torch.mul(sums, scale, out=torch.empty_like(q)), dk, dv


def prepared_sums(dy: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return zeros in fp32 for the gradients of queries, and the sums of dy * y."""
    sums = torch.empty(dy.shape, dtype=torch.float32, device=dy.device)
    delta = torch.empty(dy.shape[:3], dtype=torch.float32, device=dy.device)
    rows, (_, H, M, D) = delta.numel(), dy.shape
    strides = (*dy.stride()[:3], *y.stride()[:3])
    programs = (triton.cdiv(rows, PREPARED),)
    prepare[programs](dy, y, delta, sums, rows, H, M, *strides, D, PREPARED)
    return sums, delta


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random heads; device "meta" needs no GPU."""
    given, how = exact.backward_inputs(shape, dtype, device)
    results = {name: torch.empty_like(given["k"]) for name in ("dk", "dv")}
    results["dq"] = torch.zeros_like(given["q"], dtype=torch.float32)
    made = arguments(given, results, causal=how.causal, scale=shape["D"] ** -0.5)
    return Problem(kernel, made, grid, shape, "hopper_attention_backward")


def reference(values: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
    """Compute gradients of k and v, and of q before it is scaled, in float64 from a problem's."""
    dy, q, k, v = (values[f"{name}_desc"].base.double() for name in ("dy", "q", "k", "v"))
    lse, delta = (values[f"{name}_ptr"].double() for name in ("lse", "delta"))
    how = Attending(causal=values["CAUSAL"], scale=values["scale"])
    dq, dk, dv = exact.differentiate(dy, q, k, v, lse, delta, how)
    return host.summed(dk, k), host.summed(dv, v), dq / values["scale"]


tuned = asm_autotune(
    space=space,
    key=["D", "CAUSAL", "MULTIPLE", "GROUP", pow2("shares"), pow2("M"), pow2("N")],
)(kernel)
