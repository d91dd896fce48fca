"""Tiles of the product in Gluon: which program computes which, shared sums, and writing.

Tiles are computed in waves, one tile a program. If the last wave has few tiles, most programs wait
for it. With STREAM_K the programs share the tiles of the last two waves, or of the only one: the
steps along K of all these tiles are dealt in spans of equal length, one span a program, which may
begin and end within a tile. Each program of a tile leaves its part of the sum in memory. The last
one to come adds all parts in the order of K, and writes the tile. No program waits for another.

Source: Osama et al., Stream-K: Work-centric Parallel Decomposition for Dense Matrix-Matrix
Multiplication on the GPU, arXiv:2301.03598.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, tma

from asmtune.kernels import _gemm
from asmtune.kernels._hopper import store_tile

activated = gluon.jit(_gemm.activated.fn)


@gluon.jit
def items_of(tiles, steps, STREAM_K: gl.constexpr):
    """Deals tiles to programs.

    Args:
        tiles: tiles of all products.
        steps: steps along K of a tile.
        STREAM_K: share tiles.

    Returns:
        How many items this program has. Then the number of items that are parts of shared tiles,
        the number of shared tiles, and the first of this program's steps of them and the one after
        its last: all 0 without STREAM_K.
    """
    program, programs = gl.program_id(0), gl.num_programs(0)
    if STREAM_K:
        rest = tiles % programs
        shared = gl.where(rest > 0, gl.minimum(tiles, rest + programs), 0)
        low, high = program * (shared * steps) // programs, _end(program, programs, shared * steps)
        parts = gl.cdiv(high, steps) - low // steps
        parts = gl.where(high > low, parts, 0)
        return parts + gl.cdiv(tiles - shared - program, programs), parts, shared, low, high
    zero = gl.to_tensor(0)
    return gl.cdiv(tiles - program, programs), zero, zero, zero, zero


@gluon.jit
def _end(program, programs, steps):
    return (program + 1) * steps // programs


@gluon.jit
def item_at(place, work, steps, STREAM_K: gl.constexpr):
    """Returns an item's tile, its first step along K, and how many steps it has."""
    _, parts, shared, low, high = work
    whole = shared + (place - parts) * gl.num_programs(0) + gl.program_id(0)
    if STREAM_K:
        part = low // steps + place
        begin = gl.maximum(low - part * steps, 0)
        count = gl.minimum(high - part * steps, steps) - begin
        is_part = place < parts
        return (
            gl.where(is_part, part, whole),
            gl.where(is_part, begin, 0),
            gl.where(is_part, count, steps),
        )
    return whole, gl.to_tensor(0), steps


@gluon.jit
def gathered(acc, sums, work, item, steps, WHO: gl.constexpr, GROUPS: gl.constexpr):
    """Leaves this program's part of a shared tile's sum; the last to come adds up all of them.

    A program has two parts at most: one that begins its tile, and one that does not.

    Args:
        acc: the part.
        sums: memory for two parts of each warpgroup of each program, and a count for each
            warpgroup of each shared tile: 0 before, and 0 again after.
        work: as `items_of` returns it.
        item: as `item_at` returns it.
        steps: steps along K of a tile.
        WHO: which warpgroup, each of which has rows of its own.
        GROUPS: warpgroups of a program.

    Returns:
        The sum, and whether this program has it.
    """
    sums_ptr, count_ptr = sums
    tile, begin, _ = item
    programs, all_steps = gl.num_programs(0), work[2] * steps
    ROWS: gl.constexpr = acc.shape[0]
    COLUMNS: gl.constexpr = acc.shape[1]
    SIZE: gl.constexpr = ROWS * COLUMNS
    m = gl.arange(0, ROWS, layout=gl.SliceLayout(1, acc.type.layout))
    n = gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, acc.type.layout))
    places = sums_ptr + m[:, None] * COLUMNS + n[None, :]
    slot = gl.program_id(0) * 2 + gl.where(begin == 0, 1, 0)
    # Past L1, which may hold what another program's part was before.
    gl.store(places + (slot * GROUPS + WHO) * SIZE, acc, cache_modifier=".cg")
    # The programs that have the tile's first and its last step.
    first = ((tile * steps + 1) * programs - 1) // all_steps
    last = ((tile * steps + steps) * programs - 1) // all_steps
    counts = count_ptr + tile * GROUPS + WHO
    # All threads' values are written before one thread says so.
    gl.thread_barrier()
    complete = gl.atomic_add(counts, 1, sem="acq_rel", scope="gpu") == last - first
    if complete:
        acc = gl.load(places + ((first * 2 + 1) * GROUPS + WHO) * SIZE, cache_modifier=".cg")
        for other in range(first + 1, last + 1):
            acc += gl.load(places + (other * 2 * GROUPS + WHO) * SIZE, cache_modifier=".cg")
        gl.store(counts, 0)
    return acc, complete


@gluon.jit
def _halved(x):
    """Splits a tile into its left and its right columns, which stay in their threads."""
    return x.reshape(x.shape[0], 2, x.shape[1] // 2).permute(0, 2, 1).split()


@gluon.jit
def finish_tile(c_desc, bias_ptr, acc, target, N, origin, ACTIVATION: gl.constexpr):
    """Adds the bias, applies the activation, and begins to write a tile by the copy engine."""
    z, row, column = origin
    LAYOUT: gl.constexpr = acc.type.layout
    ROWS: gl.constexpr = acc.shape[0]
    BLOCK_N: gl.constexpr = acc.shape[1]
    C_COLUMNS: gl.constexpr = target.shape[2]
    C_LAYOUT: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, C_COLUMNS], target.dtype)
    if bias_ptr is not None:
        n = column + gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, LAYOUT))
        acc += gl.load(bias_ptr + n, mask=n < N, other=0.0).to(gl.float32)[None, :]
    out = activated(acc, ACTIVATION).to(target.dtype)
    pieces = (out,) if C_COLUMNS == BLOCK_N else _halved(out)
    rows = target._reinterpret(target.dtype, [ROWS, C_COLUMNS], C_LAYOUT)
    for piece in gl.static_range(BLOCK_N // C_COLUMNS):
        # The copy engine has read what was stored here before.
        tma.store_wait(0)
        rows.store(gl.convert_layout(pieces[piece], LAYOUT))
        fence_async_shared()
        store_tile(c_desc, [z, row, column + piece * C_COLUMNS], target)
