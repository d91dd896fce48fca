"""Sums of a product for Hopper that several programs share, and their addition by the last one."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

# Its names in Triton 3.6, and in newer versions.
thread_barrier = getattr(gl, "thread_barrier", None) or gl.barrier


@gluon.jit
def blocks_of(part, K, BLOCK_K: gl.constexpr, SPLIT_K: gl.constexpr):
    """Return the first block of a part of a sum, and the one after its last.

    Each part has a block at least where there are as many blocks as parts.
    """
    blocks = gl.cdiv(K, BLOCK_K)
    return part * blocks // SPLIT_K, (part + 1) * blocks // SPLIT_K


@gluon.jit
def _places(ptr, acc):
    """Return addresses for a tile, one row after the other."""
    LAYOUT: gl.constexpr = acc.type.layout
    rows = gl.arange(0, acc.shape[0], layout=gl.SliceLayout(1, LAYOUT))
    columns = gl.arange(0, acc.shape[1], layout=gl.SliceLayout(0, LAYOUT))
    return ptr + rows[:, None] * acc.shape[1] + columns[None, :]


@gluon.jit
def _added(ptr, acc, SIZE: gl.constexpr, SPLIT_K: gl.constexpr):
    """Add up the parts of a tile, in the order of K."""
    places = _places(ptr, acc)
    LAYOUT: gl.constexpr = acc.type.layout
    total = gl.zeros([acc.shape[0], acc.shape[1]], gl.float32, LAYOUT)
    # A loop of all parts: what is loaded before it would stay in registers beside the next part.
    for part in range(SPLIT_K):
        total += gl.load(places + part * SIZE, cache_modifier=".cg")
    return total


@gluon.jit
def gathered(sums, shared, owner, part, COLUMNS: gl.constexpr, SPLIT_K: gl.constexpr):
    """Store a part of a warpgroup's sums in memory; the last one to come adds all parts up.

    Nobody waits for anybody, so that any number of programs may run at a time.

    Args:
        sums: this part, of all columns, or of the first and of the rest.
        shared: memory for all parts, and how many of each sum are there: 0 before, 0 again after.
        owner: which sum.
        part: which part.
        COLUMNS: of the whole tile.
        SPLIT_K: parts of a sum.

    Returns:
        The sums, and whether this warpgroup has them.
    """
    sums_ptr, count_ptr = shared
    acc = sums[0]
    FIRST: gl.constexpr = acc.shape[0] * acc.shape[1]
    SIZE: gl.constexpr = acc.shape[0] * COLUMNS
    base = sums_ptr + owner.to(gl.int64) * (SPLIT_K * SIZE)
    # Past L1, which may hold what another program's part was before.
    gl.store(_places(base, acc) + part * SIZE, acc, cache_modifier=".cg")
    if FIRST < SIZE:
        rest = sums[1]
        gl.store(_places(base + FIRST, rest) + part * SIZE, rest, cache_modifier=".cg")
    # All threads' parts are written before one thread says so.
    thread_barrier()
    complete = gl.atomic_add(count_ptr + owner, 1, sem="acq_rel", scope="gpu") == SPLIT_K - 1
    if complete:
        acc = _added(base, acc, SIZE, SPLIT_K)
        if FIRST < SIZE:
            rest = _added(base + FIRST, rest, SIZE, SPLIT_K)
        gl.store(count_ptr + owner, 0)
    return (acc, rest) if FIRST < SIZE else (acc,), complete
