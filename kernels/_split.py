"""Sums that several programs share: memory for their parts, and their addition by the last."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from asmtune.runtime.call_trace import keep_alive

SUMS_BYTES = 32 << 20
"""Bytes for the parts of split sums: as much as cuBLAS takes for itself on Hopper."""

MOST_COUNTS = 1 << 14
"""Most tiles whose sums are split."""

_spaces: dict[tuple[torch.device, int, int], tuple[torch.Tensor, torch.Tensor]] = {}


def workspace(device: torch.device, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Allocate memory for parts of sums, and counts at 0, for the current stream.

    Two launches at a time must not share them. A captured graph may run beside anything, and
    so gets its own.

    Args:
        device: device of the launch.
        size: bytes of all parts.

    Returns:
        size // 4 numbers of 32 bits, and MOST_COUNTS counts, which a launch leaves at 0.
    """
    if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        return _new(device, size)
    key = (device, torch.cuda.current_stream(device).cuda_stream, size)
    if key not in _spaces:
        _spaces[key] = _new(device, size)
        keep_alive(*_spaces[key])
    return _spaces[key]


def _new(device: torch.device, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    sums = torch.empty(size // 4, dtype=torch.float32, device=device)
    return sums, torch.zeros(MOST_COUNTS, dtype=torch.int32, device=device)


@triton.jit
def gathered(acc, sums_ptr, count_ptr, tile, part, PARTS: tl.constexpr):
    """Store a part of a tile's sum; the last one to come adds all up, always in one order.

    Nobody waits for anybody, so that any number of programs may run at a time.

    Args:
        acc: this part.
        sums_ptr: memory for all parts of all tiles.
        count_ptr: how many parts of each tile are there; 0 before, and 0 again after.
        tile: which tile.
        part: which part.
        PARTS: of each tile.

    Returns:
        The sum, and whether this program has it.
    """
    BLOCK_M: tl.constexpr = acc.shape[0]
    BLOCK_N: tl.constexpr = acc.shape[1]
    m, n = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    places = sums_ptr.to(tl.pointer_type(acc.dtype), bitcast=True)
    places += tile.to(tl.int64) * (PARTS * BLOCK_M * BLOCK_N) + m[:, None] * BLOCK_N + n[None, :]
    # Past L1, which may hold what another program's part was before.
    tl.store(places + part * (BLOCK_M * BLOCK_N), acc, cache_modifier=".cg")
    # All threads' parts are written before one thread says so.
    tl.debug_barrier()
    complete = tl.atomic_add(count_ptr + tile, 1, sem="acq_rel", scope="gpu") == PARTS - 1
    if complete:
        acc = tl.load(places, cache_modifier=".cg")
        for other in tl.static_range(1, PARTS):
            acc += tl.load(places + other * (BLOCK_M * BLOCK_N), cache_modifier=".cg")
        tl.store(count_ptr + tile, 0)
    return acc, complete
