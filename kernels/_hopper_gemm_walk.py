"""Device functions of the matrix product for Hopper: the loads, the products, and the results.

`_hopper_gemm` tells how warps work together, and what each barrier is for.

Triton's tensors have extents that are powers of two. A tile of 192 columns is made of two, of 128
and 64 columns, one of 160 of 128 and 32, and one of 96 of 64 and 32. The copy engine loads its part
of B as three blocks of 64 columns, or five or three of 32, one after the other, of which all but
the last are read as one.
Where B is dense along K, each column is a row of 128 bytes, and any blocks add up. Where it is
dense along N, rows are cut at 128 bytes, and so blocks of 64 columns do, and narrower ones do not.
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

from asmtune.kernels import _gemm
from asmtune.kernels._hopper import (
    load_tile,
    next_stage,
    shaped,
    stage_before,
    store_tile,
    tile_of,
)
from asmtune.kernels.gelu import gelu_of_halves as _gelu

tile_origin = gluon.jit(_gemm.tile_origin.fn)
activated = gluon.jit(_gemm.activated.fn)
gelu_of_halves = gluon.jit(_gelu.fn)

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


@gluon.jit
def load_tiles(operands, rings, sizes, TILING: gl.constexpr, B_ALONG_K: gl.constexpr):
    """Load the blocks of every tile, or part of a tile's sum, as stages become free."""
    a_desc, b_desc = operands
    a_ring, b_ring, full, empty, _ = rings
    M, N, K, tiles, all_tiles = sizes
    BLOCK_M: gl.constexpr = TILING[0]
    BLOCK_N: gl.constexpr = TILING[1]
    BLOCK_K: gl.constexpr = TILING[2]
    GROUP_M: gl.constexpr = TILING[3]
    SPLIT_K: gl.constexpr = TILING[4]
    STAGES: gl.constexpr = full.shape[0]
    PARTS: gl.constexpr = a_ring.shape[0] // STAGES
    PIECES: gl.constexpr = b_ring.shape[0] // STAGES
    ROWS: gl.constexpr = a_ring.shape[2]
    COLUMNS: gl.constexpr = BLOCK_N // PIECES
    NBYTES: gl.constexpr = PARTS * a_desc.block_type.nbytes + PIECES * b_desc.block_type.nbytes
    stage, phase = gl.to_tensor(0), gl.to_tensor(0)
    for index in range(gl.program_id(0), all_tiles * SPLIT_K, gl.num_programs(0)):
        tile = index // SPLIT_K
        z = tile // tiles
        row, column = tile_origin(tile % tiles, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        begin, end = blocks_of(index % SPLIT_K, K, BLOCK_K, SPLIT_K)
        for at in range(begin * BLOCK_K, end * BLOCK_K, BLOCK_K):
            mbarrier.wait(empty.index(stage), phase ^ 1)
            ready = full.index(stage)
            mbarrier.expect(ready, NBYTES)
            for part in gl.static_range(PARTS):
                target = a_ring.index(stage * PARTS + part)
                load_tile(a_desc, [z, row + part * ROWS, at], ready, target)
            for piece in gl.static_range(PIECES):
                target = b_ring.index(stage * PIECES + piece)
                n = column + piece * COLUMNS
                if B_ALONG_K:
                    load_tile(b_desc, [z, n, at], ready, target)
                else:
                    load_tile(b_desc, [z, at, n], ready, target)
            stage, phase = next_stage(stage, phase, STAGES)


@gluon.jit
def _columns_of(b_ring, place, COLUMNS: gl.constexpr, BLOCK_K: gl.constexpr, ALONG_K: gl.constexpr):
    """Return a block of B that begins at a tile of the ring, and may go on in the next one."""
    BLOCK: gl.constexpr = [COLUMNS, BLOCK_K] if ALONG_K else [BLOCK_K, COLUMNS]
    LAYOUT: gl.constexpr = gl.NVMMASharedLayout.get_default_for(BLOCK, b_ring.dtype)
    b = shaped(b_ring.index(place), BLOCK, LAYOUT)
    if ALONG_K:
        b = b.permute((1, 0))
    return b


@gluon.jit
def _multiply_steps(
    rings, stage, phase, steps, WHO: gl.constexpr, TILING: gl.constexpr, B_ALONG_K: gl.constexpr
):
    """Sum the products of a tile's blocks, from a stage of the ring on.

    Returns the sums of all pieces of the tile's columns, or of all but the last, and of that.
    """
    a_ring, b_ring, full, empty, turns = rings
    STAGES: gl.constexpr = full.shape[0]
    PARTS: gl.constexpr = a_ring.shape[0] // STAGES
    PIECES: gl.constexpr = b_ring.shape[0] // STAGES
    PART: gl.constexpr = WHO if PARTS > 1 else 0
    ROWS: gl.constexpr = a_ring.shape[2]
    BLOCK_K: gl.constexpr = TILING[2]
    REST: gl.constexpr = TILING[1] // PIECES if PIECES > 1 else 0
    FIRST: gl.constexpr = TILING[1] - REST
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, FIRST, 16])
    REST_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, REST, 16])
    acc = gl.zeros([ROWS, FIRST], gl.float32, LAYOUT)
    rest = gl.zeros([ROWS, REST], gl.float32, REST_LAYOUT) if REST else None
    for step in range(steps):
        mbarrier.wait(full.index(stage), phase)
        a = tile_of(a_ring, stage * PARTS + PART)
        b = _columns_of(b_ring, stage * PIECES, FIRST, BLOCK_K, B_ALONG_K)
        acc = warpgroup_mma(a, b, acc, is_async=True)
        # Then the products of the step before are done: its stage is free.
        if REST:
            last = _columns_of(b_ring, stage * PIECES + PIECES - 1, REST, BLOCK_K, B_ALONG_K)
            rest = warpgroup_mma(a, last, rest, is_async=True)
            acc, rest = warpgroup_mma_wait(num_outstanding=2, deps=[acc, rest])
        else:
            acc = warpgroup_mma_wait(num_outstanding=1, deps=[acc])
        mbarrier.arrive(empty.index(stage_before(stage, STAGES)), count=1, pred=step > 0)
        stage, phase = next_stage(stage, phase, STAGES)
    if PARTS == 1:
        mbarrier.arrive(turns.index((WHO + 1) % turns.shape[0]), count=1)
    if REST:
        acc, rest = warpgroup_mma_wait(num_outstanding=0, deps=[acc, rest])
    else:
        acc = warpgroup_mma_wait(num_outstanding=0, deps=[acc])
    mbarrier.arrive(empty.index(stage_before(stage, STAGES)), count=1)
    return (acc, rest) if REST else (acc,)


@gluon.jit
def _cut(x, COLUMNS: gl.constexpr):
    """Split a tile into pieces of so many columns, which stay in their threads."""
    if x.shape[1] == COLUMNS:
        pieces = (x,)
    else:
        left, right = x.reshape(x.shape[0], 2, x.shape[1] // 2).permute(0, 2, 1).split()
        pieces = _cut(left, COLUMNS) + _cut(right, COLUMNS)
    return pieces


@gluon.jit
def _bias_of(bias_ptr, column, N, COLUMNS: gl.constexpr):
    """Load the bias of so many columns, from one on, as their sums lie."""
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLUMNS, 16])
    n = column + gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, SUMS))
    return gl.load(bias_ptr + n, mask=n < N, other=0.0)


@gluon.jit
def _biases_of(bias_ptr, column, N, BLOCK_N: gl.constexpr, FIRST: gl.constexpr):
    """Load the bias of a tile's columns: of the first so many, and of the others if any."""
    if FIRST == BLOCK_N:
        biases = (_bias_of(bias_ptr, column, N, FIRST),)
    else:
        first = _bias_of(bias_ptr, column, N, FIRST)
        biases = (first, _bias_of(bias_ptr, column + FIRST, N, BLOCK_N - FIRST))
    return biases


@gluon.jit
def _rounded(acc, bias, ACTIVATION: gl.constexpr, dtype: gl.constexpr):
    """Add the bias, activate and round sums."""
    if bias is not None:
        acc += bias.to(gl.float32)[None, :]
    if ACTIVATION == "gelu":  # noqa: SIM108 (either call has a line of its own)
        acc = gelu_of_halves(acc)
    else:
        acc = activated(acc, ACTIVATION)
    return acc.to(dtype)


@gluon.jit
def _write(pieces, results, origin, COUNT: gl.constexpr, TOGETHER: gl.constexpr, WHO: gl.constexpr):
    """Write a warpgroup's pieces of a tile, so many at a time, each from memory of its own."""
    c_desc, _, c_tiles, _ = results
    z, row, column = origin
    COLUMNS: gl.constexpr = c_tiles.shape[3]
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLUMNS, 16])
    for first in gl.static_range(0, COUNT, TOGETHER):
        # The copy engine has read what was stored here before.
        tma.store_wait(0)
        for i in gl.static_range(TOGETHER):
            rows = tile_of(c_tiles, WHO * TOGETHER + i)
            rows.store(gl.convert_layout(pieces[first + i], LAYOUT))
        fence_async_shared()
        for i in gl.static_range(TOGETHER):
            target = c_tiles.index(WHO * TOGETHER + i)
            store_tile(c_desc, [z, row, column + (first + i) * COLUMNS], target)


@gluon.jit
def _finish(
    sums, biases, results, origin, N, WHO: gl.constexpr, CONSUMERS: gl.constexpr,
    BLOCK_N: gl.constexpr, ACTIVATION: gl.constexpr,
):  # fmt: skip
    """Write a warpgroup's rows of a tile from their sums; load its bias if that is not done."""
    _, bias_ptr, c_tiles, _ = results
    COLUMNS: gl.constexpr = c_tiles.shape[3]
    if bias_ptr is not None and biases[0] is None:
        biases = _biases_of(bias_ptr, origin[2], N, BLOCK_N, sums[0].shape[1])
    out = _rounded(sums[0], biases[0], ACTIVATION, c_tiles.dtype)
    pieces = _cut(out, COLUMNS)
    if out.shape[1] < BLOCK_N:
        pieces += (_rounded(sums[1], biases[1], ACTIVATION, c_tiles.dtype),)
    _write(pieces, results, origin, BLOCK_N // COLUMNS, c_tiles.shape[0] // CONSUMERS, WHO)


@gluon.jit
def multiply_tiles(
    results, rings, sizes, WHO: gl.constexpr, TILING: gl.constexpr, B_ALONG_K: gl.constexpr,
    ACTIVATION: gl.constexpr,
):  # fmt: skip
    """Compute this warpgroup's part of the program's tiles, or every so many-th tile."""
    bias_ptr, shared = results[1], results[3]
    M, N, K, tiles, all_tiles = sizes
    a_ring, b_ring, full, _, turns = rings
    BLOCK_M: gl.constexpr = TILING[0]
    BLOCK_N: gl.constexpr = TILING[1]
    BLOCK_K: gl.constexpr = TILING[2]
    GROUP_M: gl.constexpr = TILING[3]
    SPLIT_K: gl.constexpr = TILING[4]
    STAGES: gl.constexpr = full.shape[0]
    PARTS: gl.constexpr = a_ring.shape[0] // STAGES
    PART: gl.constexpr = WHO if PARTS > 1 else 0
    ROWS: gl.constexpr = a_ring.shape[2]
    CONSUMERS: gl.constexpr = turns.shape[0]
    PIECES: gl.constexpr = b_ring.shape[0] // STAGES
    FIRST: gl.constexpr = BLOCK_N - BLOCK_N // PIECES if PIECES > 1 else BLOCK_N
    # After the sums all would wait for it. Beside larger ones it does not fit in registers.
    BIAS_AHEAD: gl.constexpr = bias_ptr is not None and ROWS * BLOCK_N <= 64 * 256
    first, every = gl.program_id(0), gl.num_programs(0)
    at = gl.to_tensor(0)
    turn = gl.to_tensor(1 if WHO == 0 else 0)
    if PARTS == 1:
        # Each warpgroup passes over the steps of the others' tiles, whose sums are never split.
        at += WHO * gl.cdiv(K, BLOCK_K)
        first += WHO * every
        every *= CONSUMERS
    for index in range(first, all_tiles * SPLIT_K, every):
        tile, part = index // SPLIT_K, index % SPLIT_K
        row, column = tile_origin(tile % tiles, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        begin, end = blocks_of(part, K, BLOCK_K, SPLIT_K)
        steps = end - begin
        biases = (None, None)
        if BIAS_AHEAD:
            biases = _biases_of(bias_ptr, column, N, BLOCK_N, FIRST)
        if PARTS == 1:
            mbarrier.wait(turns.index(WHO), turn)
            turn ^= 1
        sums = _multiply_steps(rings, at % STAGES, at // STAGES & 1, steps, WHO, TILING, B_ALONG_K)
        at += steps * (CONSUMERS if PARTS == 1 else 1)
        complete = True
        if SPLIT_K > 1:
            sums, complete = gathered(sums, shared, tile * PARTS + PART, part, BLOCK_N, SPLIT_K)
        if complete:
            origin = (tile // tiles, row + PART * ROWS, column)
            _finish(sums, biases, results, origin, N, WHO, CONSUMERS, BLOCK_N, ACTIVATION)
    tma.store_wait(0)
