"""Attention forward in Gluon for Hopper: a warp loads, warpgroups take turns at the tensor cores.

A program walks over blocks of queries, dealt so that all programs have as much to do and heads at
work have keys in L2 (`heads_together`). One warp fills rings of keys and values by the copy engine
(TMA). Each of CONSUMERS warpgroups has 64 queries of a block. It issues the products of the next
scores and of this block's values together, and then computes the softmax of those scores, so that
its own products and those of the other warpgroups run under its softmax.
Where memory allows, a warpgroup has two tiles of queries, and those of the next block are loaded
while it works on this one. To compute the next block's first scores beside this one's last values
was tried on an H100 and was slower.

Barriers:

- `full` and `empty` of each stage of the keys and of the values, and of each tile of queries.
  The loading warp arrives at `full` and announces the bytes; each reader arrives at `empty` once
  its product is done. A wait for use n of a stage waits for phase n of `full` and n - 1 of `empty`.
- `turns`: a warpgroup issues products when the one before it has issued its own. All walk over the
  same blocks of keys, and so take as many turns.

Keys and values out of bounds are read as 0 and masked, queries are neither read nor written there.

Shapes: q is (batch, heads, queries, dim), k and v (batch, key heads, keys, dim); dim is 64 or 128.
Dtypes: fp16, bf16; softmax in fp32, for powers of 2.
Layout: dense rows at multiples of 16 bytes.
Source: Shah et al., FlashAttention-3, arXiv:2407.08608.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
)

from asmtune.core.config import Config
from asmtune.core.keys.buckets import pow2
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from asmtune.kernels import _attention_host as host
from asmtune.kernels import _attention_spec as exact
from asmtune.kernels._common import multiple, processors
from asmtune.kernels._hopper import (
    barriers_of,
    described,
    refuse_others,
    ring_of,
    set_block,
    store_tile,
    tile_of,
)
from asmtune.kernels._hopper_attention_walk import (
    ROWS,
    attend_item,
    heads_together,
    item_at,
    load_all,
    rounds,
)
from asmtune.runtime.call_trace import sets_blocks
from asmtune.runtime.decorator import asm_autotune


@gluon.jit
def _attend(results, rings, barriers, sizes, scale, H, WHO: gl.constexpr, FIXED: gl.constexpr):
    """Compute this warpgroup's 64 queries of every item of the program."""
    y_desc, lse_ptr, y_tiles = results
    BLOCK_M: gl.constexpr = FIXED[0]
    CAUSAL: gl.constexpr = FIXED[1]
    MULTIPLE: gl.constexpr = FIXED[2]
    q_ring, k_ring, _ = rings
    q_full = barriers[0][0]
    TILES: gl.constexpr = q_ring.shape[0] // y_tiles.shape[0]
    BLOCK_N: gl.constexpr = k_ring.shape[3]
    MASKED: gl.constexpr = CAUSAL or MULTIPLE % BLOCK_N != 0
    y = tile_of(y_tiles, WHO)
    zero = gl.to_tensor(0)
    # The first warpgroup's first turn waits for nothing.
    at = (zero, zero, zero, zero, gl.to_tensor(1 if WHO == 0 else 0))
    heads, M = sizes[0], sizes[1]
    for turn in range(rounds(gl.cdiv(M, BLOCK_M) * heads)):
        head, first, blocks = item_at(turn, sizes, BLOCK_M, BLOCK_N, CAUSAL)
        tile = WHO * TILES + turn % TILES
        mbarrier.wait(q_full.index(tile), turn // TILES & 1)
        q = tile_of(q_ring, tile)
        place = (tile, first + WHO * ROWS, blocks)
        acc, top, total, m, at = attend_item(
            q, rings, barriers, at, place, sizes, scale, WHO, CAUSAL, MASKED
        )
        # A query whose scores are all -inf has no sum.
        blind = total == 0.0
        inverse = gl.where(blind, 0.0, 1.0 / total)
        lse = gl.where(blind, float("inf"), top + gl.log2(total))
        gl.store(lse_ptr + head.to(gl.int64) * M + m, lse, mask=m < M)
        inverse = gl.convert_layout(inverse, gl.SliceLayout(1, acc.type.layout))
        out = (acc * inverse[:, None]).to(q_ring.dtype)
        # The copy engine has read what was stored here before.
        tma.store_wait(0)
        y.store(out)
        fence_async_shared()
        store_tile(y_desc, [head // H, head % H, first + WHO * ROWS, 0], y_tiles.index(WHO))
    tma.store_wait(0)


_SHARED = 226 * 1024


@gluon.constexpr_function
def query_tiles(D, BLOCK_N, STAGES, CONSUMERS):
    """Return how many tiles of queries a warpgroup has: two where there is memory for both."""
    rows = ROWS.value * CONSUMERS
    return 2 if 2 * D * (3 * rows + 2 * BLOCK_N * STAGES) <= _SHARED else 1


@gluon.jit
def kernel(
    q_desc, k_desc, v_desc, y_desc, lse_ptr, heads, H, GROUP, M, N, together_2, together_3, scale,
    D: gl.constexpr, CAUSAL: gl.constexpr, MULTIPLE: gl.constexpr,
    SMS: gl.constexpr,  # noqa: ARG001 (of the grid)
    BLOCK_N: gl.constexpr, STAGES: gl.constexpr, CONSUMERS: gl.constexpr,
):  # fmt: skip
    """Attend for every so many-th block of 64 * CONSUMERS queries, of all heads."""
    TILES: gl.constexpr = CONSUMERS * query_tiles(D, BLOCK_N, STAGES, CONSUMERS)
    rings = (ring_of(q_desc, TILES), ring_of(k_desc, STAGES), ring_of(v_desc, STAGES))
    y_tiles = ring_of(y_desc, CONSUMERS)
    barriers = (
        (barriers_of(TILES, 1), barriers_of(TILES, 1)),
        (barriers_of(STAGES, 1), barriers_of(STAGES, CONSUMERS)),
        (barriers_of(STAGES, 1), barriers_of(STAGES, CONSUMERS)),
        barriers_of(CONSUMERS, 1),
    )
    fence_async_shared()  # so that copies see the barriers
    sizes = (heads, M, N, together_2 if CONSUMERS == 2 else together_3)
    BLOCK_M: gl.constexpr = ROWS * CONSUMERS
    power = scale * 1.4426950408889634
    results = (y_desc, lse_ptr, y_tiles)
    FIXED: gl.constexpr = (BLOCK_M, CAUSAL, MULTIPLE)
    loads = ((q_desc, k_desc, v_desc), rings, barriers, sizes, H, GROUP, BLOCK_M, CAUSAL)
    if CONSUMERS == 2:
        gl.warp_specialize(
            [
                (_attend, (results, rings, barriers, sizes, power, H, 0, FIXED)),
                (_attend, (results, rings, barriers, sizes, power, H, 1, FIXED)),
                (load_all, loads),
            ],
            [4, 1],
            [240, 24],
        )
    else:
        gl.warp_specialize(
            [
                (_attend, (results, rings, barriers, sizes, power, H, 0, FIXED)),
                (_attend, (results, rings, barriers, sizes, power, H, 1, FIXED)),
                (_attend, (results, rings, barriers, sizes, power, H, 2, FIXED)),
                (load_all, loads),
            ],
            [4, 4, 1],
            [160, 160, 24],
        )


OUTPUTS = ("y_desc", "lse_ptr")

DTYPES = ("fp16", "bf16")

DIMS = (64, 128)

SHAPES = tuple(shape for shape in host.SHAPES if shape["D"] in DIMS)

_TILES = (  # BLOCK_N, STAGES, CONSUMERS
    (128, 2, 2), (64, 3, 2), (64, 4, 2), (128, 3, 2), (128, 2, 3), (64, 3, 3),
)  # fmt: skip
_REGISTERS = {2: 168, 3: 128}
"""Registers of a thread: 65536 over the warps, in units of 8."""
_L2_BYTES = 24 << 20
"""Keys and values that stay in L2 beside all else: half of an H100's."""


@sets_blocks
def set_blocks(values: Mapping[str, Any]) -> None:
    """Set what a config's descriptors copy at a time: its `pre_hook`."""
    for name in ("q_desc", "y_desc"):
        set_block(values[name], ROWS.value, values["D"])
    for name in ("k_desc", "v_desc"):
        set_block(values[name], values["BLOCK_N"], values["D"])


def space() -> Space:
    """List blocks of keys with their stages and warpgroups."""
    configs = [
        Config(
            {"BLOCK_N": block, "STAGES": stages, "CONSUMERS": consumers},
            num_warps=4,
            maxnreg=_REGISTERS[consumers],
            pre_hook=set_blocks,
        )
        for block, stages, consumers in _TILES
    ]
    return (
        Space.from_configs(configs, default=configs[0])
        .where("queries, results, and keys and values in stages fit in shared memory", _fits_shared)
        .where("scores, weights and sums fit in a thread's registers", _fits_threads)
    )


def _fits_shared(D: int, BLOCK_N: int, STAGES: int, CONSUMERS: int) -> bool:
    return 2 * D * 2 * (ROWS.value * CONSUMERS + BLOCK_N * STAGES) <= _SHARED


def _fits_threads(D: int, BLOCK_N: int, CONSUMERS: int) -> bool:
    # Weights take half a register each. The rest is for addresses, maxima and sums.
    taken = (BLOCK_N + D + BLOCK_N // 2) // 2 + 32
    return taken <= (240 if CONSUMERS == 2 else 160)


def grid(values: Mapping[str, Any]) -> tuple[int]:
    """Give the grid: a program for each multiprocessor, or for each item if they are fewer."""
    blocks = triton.cdiv(values["M"], ROWS.value * values["CONSUMERS"])
    return (min(blocks * values["heads"], values["SMS"]),)


def arguments(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, y: torch.Tensor, lse: torch.Tensor,
    *, causal: bool, scale: float,
) -> dict[str, Any]:  # fmt: skip
    """Give a launch's arguments by name; `y` is as q, `lse` (batch, heads, queries) in fp32."""
    (batches, heads, M, D), N = q.shape, k.shape[2]
    group, programs = heads // k.shape[1], processors(q.device)
    in_l2 = max(_L2_BYTES // (2 * N * D * k.element_size()), 1) * group
    together = {
        f"together_{warpgroups}": heads_together(
            batches * heads, group, (M, N), ROWS.value * warpgroups, in_l2, programs
        )
        if causal
        else group
        for warpgroups in _REGISTERS
    }
    return {
        "q_desc": described(q),
        "k_desc": described(k),
        "v_desc": described(v),
        "y_desc": described(y),
        "lse_ptr": lse,
        "heads": batches * heads,
        "H": heads,
        "GROUP": group,
        "M": M,
        "N": N,
        **together,
        "scale": scale,
        "D": D,
        "CAUSAL": causal,
        "MULTIPLE": min(multiple(N), 256),
        "SMS": programs,
    }


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, y: torch.Tensor, lse: torch.Tensor,
    *, causal: bool, scale: float,
) -> None:  # fmt: skip
    """Write attention to `y` and log2 of the sums to `lse` by the tuned kernel.

    Raises:
        ValueError: the GPU, a dtype, the dim or a layout is not one that the kernel takes.
    """
    if q.shape[-1] not in DIMS:
        raise ValueError(f"attend: q is {tuple(q.shape)}; its dim must be one of {DIMS}")
    refuse_others("attend", {"q": q, "k": k, "v": v, "y": y})
    tuned[grid](**arguments(q, k, v, y, lse, causal=causal, scale=scale))


def in_place_of_plain(plain: Mapping[str, Any]) -> None:
    """Compute what `attention`'s kernel does from the arguments of its launch by name.

    Raises:
        ValueError: as `attend` does, or the launch has a window, padding, a mask or dropout.
    """
    options = ("WINDOWED", "PADDING", "MASK", "DROPOUT", "ahead")
    more = [name for name in options if plain[name]]
    if more:
        raise ValueError(f"attend: {', '.join(more).lower()} is not what this kernel computes")
    tensors = (plain[f"{name}_ptr"] for name in ("q", "k", "v", "y", "lse"))
    attend(*tensors, causal=plain["CAUSAL"], scale=plain["scale"])


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random heads; device "meta" needs no GPU."""
    q, k, v = exact.random_heads(shape, dtype, device, "q", "k", "v").values()
    y, lse = torch.empty_like(q), torch.empty(q.shape[:3], device=device)
    scale = shape["D"] ** -0.5
    given = arguments(q, k, v, y, lse, causal=bool(shape["causal"]), scale=scale)
    return Problem(kernel, given, grid, shape, "hopper_attention")


tuned = asm_autotune(
    space=space, key=["D", "CAUSAL", "MULTIPLE", pow2("heads"), pow2("M"), pow2("N")]
)(kernel)
