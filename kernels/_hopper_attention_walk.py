"""Attention for Hopper: the order of items, the loads, and the walk over keys.

`_hopper_attention` tells how warps work together, and what each barrier is for.
With causal masks blocks differ in length. The longest of some heads come first, then the others of
these heads, then those of the next heads. Many heads at once deal most evenly; few find the keys in
L2 that others have read. So the host chooses how many heads' blocks are dealt at once.
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Callable

import numpy as np
import triton
from numpy.typing import NDArray
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from asmtune.kernels._hopper import load_tile, next_stage, tile_of

ROWS = gl.constexpr(64)
"""Queries of a warpgroup: those of one instruction."""


@gluon.jit
def rounds(items):
    """Count the items of this program; every other round deals them in the opposite order."""
    programs, program = gl.num_programs(0), gl.program_id(0)
    whole = items // programs
    place = gl.where(whole % 2 == 0, program, programs - 1 - program)
    return whole + gl.where(place < items % programs, 1, 0)


@gluon.jit
def item_at(turn, sizes, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, CAUSAL: gl.constexpr):
    """Return the head, the first query and the number of key blocks of one item of this program.

    The longest blocks of `together` heads come first, so that the keys of those stay in L2.
    """
    heads, M, N, together = sizes
    programs, program = gl.num_programs(0), gl.program_id(0)
    item = turn * programs + gl.where(turn % 2 == 0, program, programs - 1 - program)
    blocks = gl.cdiv(M, BLOCK_M)
    begin = item // (blocks * together) * together
    height = gl.minimum(heads - begin, together)
    rest = item - begin * blocks
    block = rest // height
    end = N
    if CAUSAL:
        block = blocks - 1 - block
        end = gl.minimum(N, block * BLOCK_M + BLOCK_M)
    return begin + rest % height, block * BLOCK_M, gl.cdiv(end, BLOCK_N)


@gluon.jit
def _load(desc, ring, barriers, stage, phase, batch, head, row):
    """Load a tile into a stage when its readers have released it."""
    full, empty = barriers
    mbarrier.wait(empty.index(stage), phase ^ 1)
    mbarrier.expect(full.index(stage), desc.block_type.nbytes)
    load_tile(desc, [batch, head, row, 0], full.index(stage), ring.index(stage))


@gluon.jit
def load_all(descs, rings, barriers, sizes, H, GROUP, BLOCK_M: gl.constexpr, CAUSAL: gl.constexpr):
    """Load queries, keys and values of every item of this program, in the order they are read."""
    q_desc, k_desc, v_desc = descs
    q_ring, k_ring, v_ring = rings
    q_bars, k_bars, v_bars, turns = barriers
    CONSUMERS: gl.constexpr = turns.shape[0]
    TILES: gl.constexpr = q_ring.shape[0] // CONSUMERS
    STAGES: gl.constexpr = k_ring.shape[0]
    BLOCK_N: gl.constexpr = k_ring.shape[3]
    stage, phase = gl.to_tensor(0), gl.to_tensor(0)
    for turn in range(rounds(gl.cdiv(sizes[1], BLOCK_M) * sizes[0])):
        head, first, blocks = item_at(turn, sizes, BLOCK_M, BLOCK_N, CAUSAL)
        batch, own = head // H, head % H
        shared = own // GROUP
        for block in range(blocks):
            _load(k_desc, k_ring, k_bars, stage, phase, batch, shared, block * BLOCK_N)
            if block == 0:
                for who in gl.static_range(CONSUMERS):
                    tile, use = who * TILES + turn % TILES, turn // TILES & 1
                    _load(q_desc, q_ring, q_bars, tile, use, batch, own, first + who * ROWS)
            _load(v_desc, v_ring, v_bars, stage, phase, batch, shared, block * BLOCK_N)
            stage, phase = next_stage(stage, phase, STAGES)


@gluon.jit
def _softmax(
    s, top, total, m, start, end, scale, LAYOUT: gl.constexpr, CAUSAL: gl.constexpr,
    MASKED: gl.constexpr,
):  # fmt: skip
    """Return powers of 2 below the highest score so far, that one, its factor, and the sums."""
    if MASKED:
        n = start + gl.arange(0, s.shape[1], layout=gl.SliceLayout(0, LAYOUT))
        seen = (n < end)[None, :]
        if CAUSAL:
            seen = seen & (n[None, :] <= m[:, None])
        s = gl.where(seen, s, float("-inf"))
    higher = gl.maximum(top, gl.max(s, 1) * scale)
    p = gl.exp2(s * scale - higher[:, None])
    shrink = gl.exp2(top - higher)
    return p, higher, shrink, total * shrink + gl.sum(p, 1)


@gluon.jit
def _scores(q, k_ring, stage, LAYOUT: gl.constexpr):
    """Begin the product of the queries and a block of keys."""
    BLOCK_N: gl.constexpr = k_ring.shape[3]
    k = tile_of(k_ring, stage).permute((1, 0))
    zeros = gl.zeros([ROWS, BLOCK_N], gl.float32, LAYOUT)
    return warpgroup_mma(q, k, zeros, use_acc=False, is_async=True)


@gluon.jit
def _add_values(p, v_ring, stage, acc):
    """Begin to add the product of the weights and a block of values."""
    return warpgroup_mma(p, tile_of(v_ring, stage), acc, is_async=True)


@gluon.jit
def _walk(
    q, rings, barriers, state, m, span, end, scale, WHO: gl.constexpr, CAUSAL: gl.constexpr,
    MASKED: gl.constexpr,
):  # fmt: skip
    """Attend to the blocks of a span, all but the last one's values.

    `state` is the sums of values, the weights of the block before, maxima and sums, the stages and
    parities of the next keys and values, and the parity of the next turn.
    """
    acc, p, top, total, k_stage, k_phase, v_stage, v_phase, turn = state
    _, k_ring, v_ring = rings
    _, k_bars, v_bars, turns = barriers
    CONSUMERS: gl.constexpr = turns.shape[0]
    STAGES: gl.constexpr = k_ring.shape[0]
    BLOCK_N: gl.constexpr = k_ring.shape[3]
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    ACC_LAYOUT: gl.constexpr = acc.type.layout
    P_LAYOUT: gl.constexpr = p.type.layout
    for block in range(span[0], span[1]):
        mbarrier.wait(k_bars[0].index(k_stage), k_phase)
        mbarrier.wait(turns.index(WHO), turn)
        scores = _scores(q, k_ring, k_stage, LAYOUT)
        mbarrier.wait(v_bars[0].index(v_stage), v_phase)
        sums = _add_values(p, v_ring, v_stage, acc)
        mbarrier.arrive(turns.index((WHO + 1) % CONSUMERS), count=1)
        s = warpgroup_mma_wait(num_outstanding=1, deps=[scores])
        mbarrier.arrive(k_bars[1].index(k_stage), count=1)
        weights, top, shrink, total = _softmax(
            s, top, total, m, block * BLOCK_N, end, scale, LAYOUT, CAUSAL, MASKED
        )
        # Compilers would move the softmax behind the wait, out from under the products, were there
        # no loop between them: LLVM but for the names, ptxas but for this wait, which is over.
        mbarrier.wait(v_bars[0].index(v_stage), v_phase)
        acc, weights = warpgroup_mma_wait(num_outstanding=0, deps=[sums, weights])
        mbarrier.arrive(v_bars[1].index(v_stage), count=1)
        acc = acc * gl.convert_layout(shrink, gl.SliceLayout(1, ACC_LAYOUT))[:, None]
        p = gl.convert_layout(weights.to(p.dtype), P_LAYOUT)
        k_stage, k_phase = next_stage(k_stage, k_phase, STAGES)
        v_stage, v_phase = next_stage(v_stage, v_phase, STAGES)
        turn ^= 1
    return acc, p, top, total, k_stage, k_phase, v_stage, v_phase, turn


@gluon.jit
def attend_item(
    q, rings, barriers, at, place, sizes, scale, WHO: gl.constexpr, CAUSAL: gl.constexpr,
    MASKED: gl.constexpr,
):  # fmt: skip
    """Attend to all keys of one item.

    Returns the sums of values, the maxima and sums of weights, the queries, and `at` as it is then:
    stages and parities of the next keys and values, and the parity of the next turn.
    """
    k_stage, k_phase, v_stage, v_phase, turn = at
    tile, first, blocks = place
    q_ring, k_ring, v_ring = rings
    q_bars, k_bars, v_bars, _ = barriers
    N = sizes[2]
    STAGES: gl.constexpr = k_ring.shape[0]
    BLOCK_N: gl.constexpr = k_ring.shape[3]
    D: gl.constexpr = k_ring.shape[4]
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    ACC_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    P_LAYOUT: gl.constexpr = gl.DotOperandLayout(0, ACC_LAYOUT, 2)
    m = first + gl.arange(0, ROWS, layout=gl.SliceLayout(1, LAYOUT))
    # The least float, not -inf: the difference of two would be NaN.
    top = gl.full([ROWS], -3.4028234663852886e38, gl.float32, gl.SliceLayout(1, LAYOUT))
    total = gl.zeros([ROWS], gl.float32, gl.SliceLayout(1, LAYOUT))
    acc = gl.zeros([ROWS, D], gl.float32, ACC_LAYOUT)

    mbarrier.wait(k_bars[0].index(k_stage), k_phase)
    s = warpgroup_mma_wait(num_outstanding=0, deps=[_scores(q, k_ring, k_stage, LAYOUT)])
    mbarrier.arrive(k_bars[1].index(k_stage), count=1)
    k_stage, k_phase = next_stage(k_stage, k_phase, STAGES)
    weights, top, _, total = _softmax(s, top, total, m, 0, N, scale, LAYOUT, CAUSAL, MASKED)
    p = gl.convert_layout(weights.to(q_ring.dtype), P_LAYOUT)

    state = (acc, p, top, total, k_stage, k_phase, v_stage, v_phase, turn)
    if MASKED:
        whole = N // BLOCK_N
        if CAUSAL:
            whole = gl.minimum(whole, (first + 1) // BLOCK_N)
        whole = gl.minimum(gl.maximum(whole, 1), blocks)
        state = _walk(q, rings, barriers, state, m, (1, whole), N, scale, WHO, CAUSAL, False)
        state = _walk(q, rings, barriers, state, m, (whole, blocks), N, scale, WHO, CAUSAL, True)
    else:
        state = _walk(q, rings, barriers, state, m, (1, blocks), N, scale, WHO, CAUSAL, False)
    acc, p, top, total, k_stage, k_phase, v_stage, v_phase, turn = state
    mbarrier.arrive(q_bars[1].index(tile), count=1)

    mbarrier.wait(v_bars[0].index(v_stage), v_phase)
    sums = _add_values(p, v_ring, v_stage, acc)
    acc = warpgroup_mma_wait(num_outstanding=0, deps=[sums])
    mbarrier.arrive(v_bars[1].index(v_stage), count=1)
    v_stage, v_phase = next_stage(v_stage, v_phase, STAGES)
    return acc, top, total, m, (k_stage, k_phase, v_stage, v_phase, turn)


_FORWARD_FAR = 0.955
"""Speed where keys are not in L2: with heads of 128, 2048 and 8192 long, on an H200."""
_BACKWARD_FAR = 0.1
"""Power of the part that stays in L2 by which speed falls where more is in use, on an H100."""


@functools.lru_cache(maxsize=1024)
def heads_together(
    heads: int, group: int, extents: tuple[int, int], rows: int, in_l2: int, programs: int
) -> int:
    """Choose how many heads' blocks are dealt at once, the longest first, where queries are causal.

    Few heads find their keys in L2. All heads deal most evenly: of 32 heads of 8192 queries the
    largest share of a program is 1.2 times the mean with 6 heads at once, and 1.0 times with all.
    Heads that share keys are neighbours, and read them at the same time.

    Args:
        heads: all heads of queries.
        group: how many share keys.
        extents: queries and keys.
        rows: queries of a block.
        in_l2: heads whose keys and values stay in L2.
        programs: programs that share the blocks.
    """
    blocks = triton.cdiv(extents[0], rows)
    if blocks * heads > 64 * programs:
        return min(in_l2, heads)  # uneven by a block or two of many
    ends = np.minimum(rows * np.arange(blocks, 0, -1), extents[1])
    # In blocks of 128 keys; to begin and to end take as long as one more.
    lengths = -(-ends // 128) + 1

    def speed(count: int) -> float:
        least = least_share(dealt(lengths, heads, count), programs)
        return least * (1 if count <= in_l2 else _FORWARD_FAR)

    return best_together(heads, group, speed)


def least_share(lengths: NDArray[np.int64], programs: int) -> float:
    """Return the mean work of a program over the most of one, dealt as `item_at` deals items."""
    turn, place = np.divmod(np.arange(len(lengths)), programs)
    program = np.where(turn % 2 == 0, place, programs - 1 - place)
    work = np.bincount(program, lengths, programs)
    return float(work.mean() / work.max())


@functools.lru_cache(maxsize=1024)
def shares_together(shares: int, extents: tuple[int, int], in_l2: int, programs: int) -> int:
    """Choose how many key heads' blocks begin at once, the longest first, where keys are causal.

    A multiprocessor takes the next block when it is done with one. With 8 of 64 heads of 2048
    queries at once the last one ends 3% after the mean on an H100, with 12 it ends 13% after it.

    Args:
        shares: all heads of keys.
        extents: queries of all heads that share keys, and keys.
        in_l2: key heads whose queries and gradients stay in L2.
        programs: programs that run at the same time.
    """
    queries, blocks = triton.cdiv(extents[0], 64), triton.cdiv(extents[1], 128)
    if blocks * shares > 32 * programs:
        return min(in_l2, shares)  # uneven by a block or two of many
    # In blocks of 64 queries; to begin and to end take as long as four more.
    lengths = queries - np.arange(blocks) * queries // blocks + 4

    def speed(count: int) -> float:
        ends = [0] * programs
        for length in dealt(lengths, shares, count).tolist():
            heapq.heapreplace(ends, ends[0] + length)
        return sum(ends) / programs / max(ends) * min(in_l2 / count, 1) ** _BACKWARD_FAR

    return best_together(shares, 1, speed)


def dealt(lengths: NDArray[np.int64], heads: int, together: int) -> NDArray[np.int64]:
    """Return the lengths of all heads' items in order: `together` heads' first items come first."""
    whole, rest = divmod(heads, together)
    return np.concatenate([np.repeat(lengths, together)] * whole + [np.repeat(lengths, rest)])


def best_together(heads: int, group: int, score: Callable[[int], float]) -> int:
    """Choose how many heads' items are dealt at once: all, or whole groups, by the highest score.

    Of equal ones it is the least, which needs the least of L2.
    """
    choices = {heads, *(group << i for i in range(heads.bit_length()) if group << i < heads)}
    return max(choices, key=lambda count: (round(score(count), 3), -count))
