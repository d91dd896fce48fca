"""Device functions of `_hopper_scaled`: loads of blocks and scales, sums over K, and results."""

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

from asmtune.kernels import _gemm
from asmtune.kernels._hopper import load_tile, next_stage, stage_before, store_tile

tile_origin = gluon.jit(_gemm.tile_origin.fn)

CONSUMERS = gl.constexpr(2)
"""Warpgroups that multiply."""

BLOCK_K = gl.constexpr(128)
"""Elements of K in a stage: the 128 bytes that the copy engine swizzles, and a group of K."""


@gluon.jit
def load_tiles(operands, rings, sizes, BLOCK: gl.constexpr, GROUP_M: gl.constexpr):
    """Load the blocks of every tile of this program, as stages become free."""
    a_desc, b_desc = operands
    a_ring, b_ring, full, empty, _ = rings
    M, N, K, all_tiles = sizes
    STAGES: gl.constexpr = full.shape[0]
    PARTS: gl.constexpr = a_ring.shape[0] // STAGES
    PIECES: gl.constexpr = b_ring.shape[0] // STAGES
    ROWS: gl.constexpr = a_ring.shape[1]
    COLUMNS: gl.constexpr = b_ring.shape[1]
    NBYTES: gl.constexpr = PARTS * a_desc.block_type.nbytes + PIECES * b_desc.block_type.nbytes
    stage, phase = gl.to_tensor(0), gl.to_tensor(0)
    for index in range(gl.program_id(0), all_tiles, gl.num_programs(0)):
        row, column = tile_origin(index, M, N, BLOCK[0], BLOCK[1], GROUP_M)
        for at in range(0, K, BLOCK_K):
            mbarrier.wait(empty.index(stage), phase ^ 1)
            ready = full.index(stage)
            mbarrier.expect(ready, NBYTES)
            for part in gl.static_range(PARTS):
                target = a_ring.index(stage * PARTS + part)
                load_tile(a_desc, [row + part * ROWS, at], ready, target)
            for piece in gl.static_range(PIECES):
                target = b_ring.index(stage * PIECES + piece)
                load_tile(b_desc, [column + piece * COLUMNS, at], ready, target)
            stage, phase = next_stage(stage, phase, STAGES)


@gluon.jit
def load_scale(scale, first, extent, group, GROUP: gl.constexpr, LAYOUT: gl.constexpr):
    """Load scales of a tile's rows or columns: a vector, or a number where all share it.

    Args:
        scale: pointer, stride along the axis, and stride along K.
        first: row or column of the tile.
        extent: rows or columns of the matrix.
        group: of K.
        GROUP: rows or columns that share a scale, 0 for all.
        LAYOUT: the vector's layout, and its length.
    """
    ptr, stride, stride_k = scale
    ptr += group * stride_k
    if GROUP == 1:
        at = first + gl.arange(0, LAYOUT[1], layout=LAYOUT[0])
        found = gl.load(ptr + at * stride, mask=at < extent, other=0.0)
    elif GROUP == 0:
        found = gl.load(ptr)
    else:
        # Columns on the right of a tile may lie outside the matrix.
        found = gl.load(ptr + gl.minimum(first, extent - 1) // GROUP * stride)
    return found


@gluon.jit
def load_scales(
    scales, sizes, origin, GROUPS: gl.constexpr, SHAPE: gl.constexpr, LAYOUT: gl.constexpr
):
    """Load scales of a tile's rows, and of its columns on the left and on the right, of all K.

    Args:
        scales: those of A and of B, as `load_scale` takes them.
        sizes: M, N and others.
        origin: row and column of the tile.
        GROUPS: rows, columns and elements of K that share a scale, 0 for all.
        SHAPE: rows, columns of a piece, and pieces, of which there are one or two.
        LAYOUT: of a piece.
    """
    DOWN: gl.constexpr = (gl.SliceLayout(1, LAYOUT), SHAPE[0])
    ACROSS: gl.constexpr = (gl.SliceLayout(0, LAYOUT), SHAPE[1])
    row, column = origin
    down = load_scale(scales[0], row, sizes[0], 0, GROUPS[0], DOWN)
    left = load_scale(scales[1], column, sizes[1], 0, GROUPS[1], ACROSS)
    right = left
    if SHAPE[2] > 1:
        right = load_scale(scales[1], column + SHAPE[1], sizes[1], 0, GROUPS[1], ACROSS)
    return down, left, right


@gluon.jit
def _joined(down, across, GROUPS: gl.constexpr):
    """Return the product of scales of rows and of columns, or the latter if both are vectors."""
    return across if GROUPS[0] == 1 and GROUPS[1] == 1 else down * across


@gluon.jit
def _scaled(sums, down, factor, GROUPS: gl.constexpr):
    """Return sums times the scales of rows and columns, of which the factor is `_joined`."""
    if GROUPS[0] == 1 and GROUPS[1] == 1:
        found = sums * down[:, None] * factor[None, :]
    elif GROUPS[0] == 1:
        found = sums * factor[:, None]
    elif GROUPS[1] == 1:
        found = sums * factor[None, :]
    else:
        found = sums * factor
    return found


@gluon.jit
def _product(some, down, scale, place, GROUPS: gl.constexpr, LAYOUT: gl.constexpr):
    """Wait for a product, and return it with the factor of its sums.

    Scales of columns are loaded while the product runs, and the factor is computed before the wait.
    So ptxas cannot wait for scales of rows, which were loaded a step ahead, before the product
    begins, and their registers are free for those of the next step.

    Args:
        some: the product.
        down: scales of rows.
        scale: of columns, as `load_scale` takes it.
        place: first column, columns of the matrix, and group of K.
        GROUPS: rows, columns and elements of K that share a scale, 0 for all.
        LAYOUT: of the scales of columns.
    """
    factor = down
    if GROUPS[2] > 0:
        across = load_scale(scale, place[0], place[1], place[2], GROUPS[1], LAYOUT)
        factor = _joined(down, across, GROUPS)
    if GROUPS[2] > 0 and (GROUPS[0] == 1 or GROUPS[1] == 1):
        some, factor = warpgroup_mma_wait(num_outstanding=0, deps=[some, factor])
    else:
        some = warpgroup_mma_wait(num_outstanding=0, deps=[some])
    return some, factor


@gluon.jit
def _added(sums, some, down, factor, GROUPS: gl.constexpr):
    """Return sums and a product, the latter by scales if groups of K have their own."""
    return sums + (_scaled(some, down, factor, GROUPS) if GROUPS[2] > 0 else some)


@gluon.jit
def sum_in_tensor_core(rings, stage, phase, steps, WHO: gl.constexpr, LAYOUT: gl.constexpr):
    """Sum the products of a tile's blocks, from a stage of the ring on."""
    a_ring, b_ring, full, empty, turns = rings
    STAGES: gl.constexpr = full.shape[0]
    PARTS: gl.constexpr = a_ring.shape[0] // STAGES
    PART: gl.constexpr = WHO if PARTS > 1 else 0
    ROWS: gl.constexpr = a_ring.shape[1]
    COLUMNS: gl.constexpr = b_ring.shape[1]
    acc = gl.zeros([ROWS, COLUMNS], gl.float32, LAYOUT)
    for step in range(steps):
        mbarrier.wait(full.index(stage), phase)
        b = b_ring.index(stage).permute((1, 0))
        acc = warpgroup_mma(a_ring.index(stage * PARTS + PART), b, acc, is_async=True)
        # The product of the step before is done: its stage is free.
        acc = warpgroup_mma_wait(num_outstanding=1, deps=[acc])
        mbarrier.arrive(empty.index(stage_before(stage, STAGES)), count=1, pred=step > 0)
        stage, phase = next_stage(stage, phase, STAGES)
    if PARTS == 1:
        mbarrier.arrive(turns.index((WHO + 1) % CONSUMERS), count=1)
    acc = warpgroup_mma_wait(num_outstanding=0, deps=[acc])
    mbarrier.arrive(empty.index(stage_before(stage, STAGES)), count=1)
    return acc


@gluon.jit
def sum_apart(
    rings, scales, sizes, origin, stage, phase, steps, WHO: gl.constexpr, LAYOUT: gl.constexpr,
    GROUPS: gl.constexpr,
):  # fmt: skip
    """Sum the products of a tile's blocks in fp32, by their scales if groups of K have their own.

    Returns the sums of the left and of the right columns; those of one piece are on the left.
    """
    a_ring, b_ring, full, empty, turns = rings
    M, N, _, _ = sizes
    row, column = origin
    STAGES: gl.constexpr = full.shape[0]
    PARTS: gl.constexpr = a_ring.shape[0] // STAGES
    PART: gl.constexpr = WHO if PARTS > 1 else 0
    PIECES: gl.constexpr = b_ring.shape[0] // STAGES
    ROWS: gl.constexpr = a_ring.shape[1]
    COLUMNS: gl.constexpr = b_ring.shape[1]
    DOWN: gl.constexpr = (gl.SliceLayout(1, LAYOUT), ROWS)
    ACROSS: gl.constexpr = (gl.SliceLayout(0, LAYOUT), COLUMNS)
    left = gl.zeros([ROWS, COLUMNS], gl.float32, LAYOUT)
    right = gl.zeros([ROWS, COLUMNS], gl.float32, LAYOUT)
    some = gl.zeros([ROWS, COLUMNS], gl.float32, LAYOUT)
    down = 1.0
    if GROUPS[2] > 0:
        down = load_scale(scales[0], row, M, 0, GROUPS[0], DOWN)
    for step in range(steps):
        mbarrier.wait(full.index(stage), phase)
        a = a_ring.index(stage * PARTS + PART)
        if PIECES > 1:
            b = b_ring.index(stage * PIECES).permute((1, 0))
            some = warpgroup_mma(a, b, some, use_acc=False, is_async=True)
            some, factor = _product(some, down, scales[1], (column, N, step), GROUPS, ACROSS)
            left = _added(left, some, down, factor, GROUPS)
            # Waits for nothing, but keeps the sum before the next product. It would take registers
            # of its own after that, of which there are too few.
            left, some = warpgroup_mma_wait(num_outstanding=0, deps=[left, some])
        b = b_ring.index(stage * PIECES + PIECES - 1).permute((1, 0))
        some = warpgroup_mma(a, b, some, use_acc=False, is_async=True)
        if PARTS == 1:
            mbarrier.arrive(turns.index((WHO + 1) % CONSUMERS), count=1, pred=step == steps - 1)
        last = (column + (PIECES - 1) * COLUMNS, N, step)
        some, factor = _product(some, down, scales[1], last, GROUPS, ACROSS)
        mbarrier.arrive(empty.index(stage), count=1)
        before = down
        if GROUPS[2] > 0:
            # Of the next step; in the last one, its own again.
            following = gl.minimum(step + 1, steps - 1)
            down = load_scale(scales[0], row, M, following, GROUPS[0], DOWN)
        if PIECES > 1:
            right = _added(right, some, before, factor, GROUPS)
        else:
            left = _added(left, some, before, factor, GROUPS)
        stage, phase = next_stage(stage, phase, STAGES)
    return left, right


@gluon.jit
def halved(x):
    """Split a tile into its left and its right columns, which stay in their threads."""
    return x.reshape(x.shape[0], 2, x.shape[1] // 2).permute(0, 2, 1).split()


@gluon.jit
def write_pieces(
    pieces, of_all, scales, sizes, c_desc, c_tiles, bias_ptr, origin, WHO: gl.constexpr,
    GROUPS: gl.constexpr, AHEAD: gl.constexpr, LAYOUT: gl.constexpr,
):  # fmt: skip
    """Write a tile's sums by pieces of columns; by scales of all K, if there are such.

    These are `of_all` if AHEAD, and are loaded now if not.
    """
    row, column = origin
    M, N, _, _ = sizes
    ROWS: gl.constexpr = pieces[0].shape[0]
    COLUMNS: gl.constexpr = c_tiles.shape[2]
    DOWN: gl.constexpr = (gl.SliceLayout(1, LAYOUT), ROWS)
    ACROSS: gl.constexpr = (gl.SliceLayout(0, LAYOUT), COLUMNS)
    BUFFERS: gl.constexpr = c_tiles.shape[0] // CONSUMERS
    for piece in gl.static_range(len(pieces)):
        out = gl.convert_layout(pieces[piece], LAYOUT)
        left = column + piece * COLUMNS
        if GROUPS[2] == 0:
            if AHEAD:
                down, across = of_all[0], of_all[1 + piece]
            else:
                down = load_scale(scales[0], row, M, 0, GROUPS[0], DOWN)
                across = load_scale(scales[1], left, N, 0, GROUPS[1], ACROSS)
            out = _scaled(out, down, _joined(down, across, GROUPS), GROUPS)
        if bias_ptr is not None:
            n = left + gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, LAYOUT))
            out += gl.load(bias_ptr + n, mask=n < N, other=0.0).to(gl.float32)[None, :]
        target = c_tiles.index(WHO * BUFFERS + piece % BUFFERS)
        if piece == 0 or BUFFERS == 1:
            # The copy engine has read what was stored here before.
            tma.store_wait(0)
        target.store(out.to(c_tiles.dtype))
        fence_async_shared()
        store_tile(c_desc, [row, left], target)
