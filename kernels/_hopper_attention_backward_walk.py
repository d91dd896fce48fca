"""Device functions of attention's backward for Hopper: the loads, and the walk over queries.

`_hopper_attention_backward` tells how warps work together, and what each barrier is for.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from asmtune.kernels._hopper import add_tile, load_tile, next_stage, store_tile, tile_of

ROWS = gl.constexpr(64)
"""Keys of a warpgroup, and queries of a block: those of one instruction."""


@gluon.jit
def place_of(sizes, CAUSAL: gl.constexpr):
    """Return a program's key head, its first key, and the first and the end of its query blocks.

    The longest programs of `together` key heads come first, so that the queries of those stay in
    L2. Neighbours add to different heads' gradients.
    """
    shares, _, _, M, N, together = sizes
    item = gl.program_id(0)
    blocks = gl.cdiv(N, 2 * ROWS)
    begin = item // (blocks * together) * together
    height = gl.minimum(shares - begin, together)
    rest = item - begin * blocks
    first = rest // height * (2 * ROWS)
    end = gl.cdiv(M, ROWS)
    start = gl.to_tensor(0)
    if CAUSAL:
        start = gl.minimum(first // ROWS, end)
    return begin + rest % height, first, start, end


@gluon.jit
def _load(desc, ring, full, stage, batch, head, row):
    """Load a tile into a stage."""
    mbarrier.expect(full.index(stage), desc.block_type.nbytes)
    load_tile(desc, [batch, head, row, 0], full.index(stage), ring.index(stage))


@gluon.jit
def _sums_at(ptr, top, first, M, other: gl.constexpr):
    """Load a number of each query of a block, by one warp."""
    m = first + gl.arange(0, ROWS, layout=gl.BlockedLayout([2], [32], [1], [0]))
    return gl.load(ptr + top + m, mask=m < M, other=other)


@gluon.jit
def load_all(descs, tiles, barriers, pointers, sizes, CAUSAL: gl.constexpr):
    """Load the program's keys and values once, and queries and gradients in the order of reading.

    The sums of a block's queries are loaded before its stage is free, and stored once it is.
    """
    q_desc, dy_desc, k_desc, v_desc, half_desc, dk_desc, dv_desc = descs
    q_ring, dy_ring, k_tiles, v_tiles, half_tiles, _, lse_ring, delta_ring, _ = tiles
    q_full, dy_full, empty, held, _, done = barriers
    STAGES: gl.constexpr = q_ring.shape[0]
    WIDTH: gl.constexpr = half_tiles.shape[4]
    _, KV, GROUP, M, _, _ = sizes
    share, first, start, end = place_of(sizes, CAUSAL)
    batch, own = share // KV, share % KV
    mbarrier.expect(held.index(0), 2 * k_desc.block_type.nbytes)
    for who in gl.static_range(2):
        row = first + who * ROWS
        load_tile(k_desc, [batch, own, row, 0], held.index(0), k_tiles.index(who))
    mbarrier.expect(held.index(1), 2 * v_desc.block_type.nbytes + 4 * half_desc.block_type.nbytes)
    for who in gl.static_range(2):
        row = first + who * ROWS
        load_tile(v_desc, [batch, own, row, 0], held.index(1), v_tiles.index(who))
        for side in gl.static_range(2):
            place = [batch, own, row, side * WIDTH]
            load_tile(half_desc, place, held.index(1), half_tiles.index(2 * side + who))
    stage, phase = gl.to_tensor(0), gl.to_tensor(0)
    top = share.to(gl.int64) * GROUP * M
    for turn in range(GROUP):
        head = own * GROUP + turn
        for block in range(start, end):
            row = block * ROWS
            lse = _sums_at(pointers[0], top + turn * M, row, M, float("inf"))
            delta = _sums_at(pointers[1], top + turn * M, row, M, 0.0)
            mbarrier.wait(empty.index(stage), phase ^ 1)
            _load(q_desc, q_ring, q_full, stage, batch, head, row)
            lse_ring.index(stage).store(lse)
            delta_ring.index(stage).store(delta)
            mbarrier.arrive(q_full.index(stage), count=1)
            _load(dy_desc, dy_ring, dy_full, stage, batch, head, row)
            stage, phase = next_stage(stage, phase, STAGES)
    for who in gl.static_range(2):
        mbarrier.wait(done.index(who), 0)
        place = [batch, own, first + who * ROWS, 0]
        store_tile(dk_desc, place, k_tiles.index(who))
        store_tile(dv_desc, place, v_tiles.index(who))
    tma.store_wait(0)


@gluon.jit
def scores_of(k, q_ring, stage, LAYOUT: gl.constexpr):
    """Begin the product of 64 keys and a block of queries."""
    zeros = gl.zeros([ROWS, ROWS], gl.float32, LAYOUT)
    q = tile_of(q_ring, stage).permute((1, 0))
    return warpgroup_mma(k, q, zeros, use_acc=False, is_async=True)


@gluon.jit
def _query_gradients(tiles, count, WHO: gl.constexpr):
    """Begin the gradients of block `count - 1`'s queries, in this warpgroup's columns."""
    half_tiles, ds_tiles = tiles[4], tiles[5]
    WIDTH: gl.constexpr = half_tiles.shape[4]
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    buffer = count & 1 ^ 1
    dq = gl.zeros([ROWS, WIDTH], gl.float32, LAYOUT)
    upper = ds_tiles.index(2 * buffer).permute((1, 0))
    dq = warpgroup_mma(upper, tile_of(half_tiles, 2 * WHO), dq, use_acc=False, is_async=True)
    lower = ds_tiles.index(2 * buffer + 1).permute((1, 0))
    return warpgroup_mma(lower, tile_of(half_tiles, 2 * WHO + 1), dq, is_async=True)


@gluon.jit
def _add_to(dq_desc, dq, sums_tiles, at, WHO: gl.constexpr):
    """Add gradients of queries to those in memory, in this warpgroup's columns."""
    WIDTH: gl.constexpr = dq.shape[1]
    # The copy engine has read what was stored here before.
    tma.store_wait(0)
    tile_of(sums_tiles, WHO).store(dq)
    fence_async_shared()
    batch, head, row = at
    add_tile(dq_desc, [batch, head, row, WHO * WIDTH], sums_tiles.index(WHO))


@gluon.jit
def begin(tiles, barriers, WHO: gl.constexpr):
    """Store zeros as dS of a block before the first."""
    q_ring, ds_tiles, passed = tiles[0], tiles[5], barriers[4]
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, ROWS, 16])
    ds_tiles.index(2 + WHO).store(gl.zeros([ROWS, ROWS], q_ring.dtype, LAYOUT))
    fence_async_shared()
    mbarrier.arrive(passed.index(1), count=1)


@gluon.jit
def finish(tiles, barriers, dq_desc, count, at, WHO: gl.constexpr):
    """Add what the last of `count` blocks contributes to the gradients of its queries."""
    mbarrier.wait(barriers[4].index(count & 1 ^ 1), count // 2 & 1)
    sums = _query_gradients(tiles, count, WHO)
    _add_to(dq_desc, warpgroup_mma_wait(num_outstanding=0, deps=[sums]), tiles[8], at, WHO)
    tma.store_wait(0)


@gluon.jit
def walk(
    tiles, barriers, dq_desc, state, place, span, N, power, WHO: gl.constexpr,
    CAUSAL: gl.constexpr, MASKED: gl.constexpr,
):  # fmt: skip
    """Add what the query blocks of a span contribute, of one head.

    `state` is both sums, the scores of the next block, in flight, how many blocks there were, and
    where the gradients of the last one's queries lie. `place` is the first key, the batch and the
    head of the queries, and the number of all blocks.
    """
    dk, dv, scores, count, before = state
    q_ring, dy_ring, k_tiles, v_tiles, _, ds_tiles, lse_ring, delta_ring, sums_tiles = tiles
    q_full, dy_full, empty, _, passed, _ = barriers
    first, batch, head, total = place
    STAGES: gl.constexpr = q_ring.shape[0]
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, ROWS, 16])
    COLUMNS: gl.constexpr = gl.SliceLayout(0, LAYOUT)
    P_LAYOUT: gl.constexpr = gl.DotOperandLayout(0, dk.type.layout, 2)
    k, v = tile_of(k_tiles, WHO), tile_of(v_tiles, WHO)
    for block in range(span[0], span[1]):
        stage, phase = count % STAGES, count // STAGES & 1
        s = warpgroup_mma_wait(num_outstanding=0, deps=[scores])
        # Sums begin at -delta.
        slope = (
            gl.zeros([ROWS, ROWS], gl.float32, LAYOUT)
            - delta_ring.index(stage).load(COLUMNS)[None, :]
        )
        mbarrier.wait(dy_full.index(stage), phase)
        slopes = warpgroup_mma(v, tile_of(dy_ring, stage).permute((1, 0)), slope, is_async=True)
        p = gl.exp2(s * power - lse_ring.index(stage).load(COLUMNS)[None, :])
        if MASKED:
            n = first + WHO * ROWS + gl.arange(0, ROWS, layout=gl.SliceLayout(1, LAYOUT))
            seen = (n < N)[:, None]
            if CAUSAL:
                m = block * ROWS + gl.arange(0, ROWS, layout=COLUMNS)
                seen = seen & (n[:, None] <= m[None, :])
            p = gl.where(seen, p, 0.0)
        weights = gl.convert_layout(p.to(q_ring.dtype), P_LAYOUT)
        values = warpgroup_mma(weights, tile_of(dy_ring, stage), dv, is_async=True)
        slope = warpgroup_mma_wait(num_outstanding=1, deps=[slopes])
        ds = (p * slope).to(q_ring.dtype)
        buffer = count & 1
        mbarrier.wait(passed.index(buffer ^ 1), count // 2 & 1)
        ds_tiles.index(2 * buffer + WHO).store(ds)
        fence_async_shared()
        ds = gl.convert_layout(ds, P_LAYOUT)
        keys = warpgroup_mma(ds, tile_of(q_ring, stage), dk, is_async=True)
        dv = warpgroup_mma_wait(num_outstanding=1, deps=[values])
        sums = _query_gradients(tiles, count, WHO)
        # The last block's successor is that block itself, whose scores nobody reads.
        after = gl.minimum(count + 1, total - 1)
        mbarrier.wait(q_full.index(after % STAGES), after // STAGES & 1)
        scores = scores_of(k, q_ring, after % STAGES, LAYOUT)
        dq, dk = warpgroup_mma_wait(num_outstanding=1, deps=[sums, keys])
        mbarrier.arrive(empty.index(stage), count=1)
        mbarrier.arrive(passed.index(buffer), count=1)
        _add_to(dq_desc, dq, sums_tiles, before, WHO)
        before = (batch, head, block * ROWS)
        count += 1
    return dk, dv, scores, count, before
