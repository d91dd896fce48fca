"""The gradients of a convolution's bias, and of what ReLU was given, in one pass over dy.

dz = dy where y > 0 or y is NaN, else 0, and dbias[f] = sum over n, i, j of dz[n, i, j, f]. Either
may be left out. A program walks part of the pixels for BLOCK filters; of those that share a sum
the last to arrive adds up all parts, always in the same order: results repeat bit by bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.core.keys.buckets import pow2
from asmtune.core.space.space import Space
from asmtune.kernels._common import multiple, processors, vouched
from asmtune.kernels._conv2d_host import pixels_first
from asmtune.kernels._split import workspace
from asmtune.runtime.decorator import asm_autotune
from asmtune.runtime.replay_calls import replay_calls

_SUMS_BYTES = 4 << 20
_LEAST_BLOCKS = 4


@triton.jit(do_not_specialize=["pixels", "filters", "programs"])
def kernel(
    dy_ptr,
    y_ptr,
    dz_ptr,
    dbias_ptr,
    sums_ptr,
    count_ptr,
    pixels,
    filters,
    programs,  # noqa: ARG001 (of the grid)
    RELU: tl.constexpr,
    BIAS: tl.constexpr,
    MULTIPLE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    WAVES: tl.constexpr,
):
    """Walk a part of the pixels for BLOCK filters, ROWS at once.

    With WAVES = 0 no sum is shared, and the memory for parts is not used.
    """
    FULL: tl.constexpr = MULTIPLE % BLOCK == 0
    filters = vouched(filters, MULTIPLE)
    tile, part, parts = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    n = tile * BLOCK + tl.arange(0, BLOCK)[None, :]
    each = tl.cdiv(tl.cdiv(pixels, parts), ROWS) * ROWS
    last = tl.minimum(part * each + each, pixels)
    sums = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(part * each, last, ROWS):
        pixel = start + tl.arange(0, ROWS)[:, None]
        inside = pixel < last if FULL else (pixel < last) & (n < filters)
        at = pixel.to(tl.int64) * filters + n
        dz = tl.load(dy_ptr + at, mask=inside, other=0.0)
        if RELU:
            y = tl.load(y_ptr + at, mask=inside, other=0.0)
            # NaN lets the gradient through.
            dz = tl.where(y <= 0, 0.0, dz).to(dz.dtype)
            tl.store(dz_ptr + at, dz, mask=inside)
        if BIAS:
            sums += dz.to(tl.float32)
    if BIAS:
        total = tl.sum(sums, 0)[None, :]
        complete = part == 0
        if WAVES > 0 and parts > 1:
            places = sums_ptr + tile * parts * BLOCK + tl.arange(0, BLOCK)[None, :]
            # Past L1, which may hold what another program's part was before.
            tl.store(places + part * BLOCK, total, cache_modifier=".cg")
            # All threads' parts are written before one thread says so.
            tl.debug_barrier()
            arrived = tl.atomic_add(count_ptr + tile, 1, sem="acq_rel", scope="gpu")
            complete = arrived == parts - 1
            if complete:
                sums = tl.zeros((ROWS, BLOCK), tl.float32)
                for start in range(0, parts, ROWS):
                    other = start + tl.arange(0, ROWS)[:, None]
                    sums += tl.load(
                        places + other * BLOCK, other < parts, other=0.0, cache_modifier=".cg"
                    )
                total = tl.sum(sums, 0)[None, :]
                tl.store(count_ptr + tile, 0)
        if complete:
            tl.store(dbias_ptr + n, total.to(dbias_ptr.dtype.element_ty), mask=n < filters)


DEFAULT = Config({"ROWS": 32, "BLOCK": 64, "WAVES": 0}, num_warps=4)
"""16 elements a thread; no sum is shared."""


def space() -> Space:
    """Build the space: pixels at once, filters, programs a multiprocessor, and warps."""
    axes = {
        "ROWS": (8, 16, 32, 64, 128),
        "BLOCK": (32, 64, 128, 256),
        "WAVES": (0, 1, 2, 4, 8),
        "num_warps": (4, 8),
    }
    return (
        Space(axes, default=DEFAULT)
        .where(
            "a thread has 8 to 32 elements",
            lambda ROWS, BLOCK, num_warps: 8 <= ROWS * BLOCK // (num_warps * 32) <= 32,
        )
        .where(
            "a block is under twice as wide as there are filters, or 64",
            lambda BLOCK, filters: (
                filters <= 32 if BLOCK == 32 else BLOCK == 64 or 2 * filters > BLOCK
            ),
        )
    )


def grid(values: Mapping[str, Any]) -> tuple[int, int]:
    """Give the grid: blocks of filters, and along the second axis programs that share one.

    Where nothing is summed any number may.
    """
    blocks = triton.cdiv(values["filters"], values["BLOCK"])
    waves = values["WAVES"] if values["BIAS"] else max(1, values["WAVES"])
    parts = min(
        waves * values["programs"] // blocks,
        triton.cdiv(values["pixels"], values["ROWS"] * _LEAST_BLOCKS),
        _SUMS_BYTES // (4 * blocks * values["BLOCK"]),
    )
    return blocks, max(1, parts)


def arguments_of(dy: torch.Tensor, y: torch.Tensor | None, has_bias: bool) -> dict[str, Any]:
    """Give the launch's arguments by name, with room for the results."""
    dy = pixels_first(dy)
    filters, pixels = dy.shape[3], dy.numel() // max(1, dy.shape[3])
    sums, counts = workspace(dy.device, _SUMS_BYTES) if has_bias else (None, None)
    dbias = torch.empty((filters,), dtype=dy.dtype, device=dy.device) if has_bias else None
    return {
        "dy_ptr": dy,
        "y_ptr": None if y is None else pixels_first(y),
        "dz_ptr": None if y is None else torch.empty_like(dy),
        "dbias_ptr": dbias,
        "sums_ptr": sums,
        "count_ptr": counts,
        "pixels": pixels,
        "filters": filters,
        "programs": processors(dy.device),
        "RELU": int(y is not None),
        "BIAS": int(has_bias),
        "MULTIPLE": multiple(filters),
    }


@replay_calls
def result_gradients(
    dy: torch.Tensor, y: torch.Tensor | None, has_bias: bool
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Compute the gradients of what ReLU was given and of the bias.

    Returns:
        The gradient before ReLU in `torch.channels_last`, None without y; and the bias's, None
        where it is not needed.
    """
    arguments = arguments_of(dy, y, has_bias)
    dz, dbias = arguments["dz_ptr"], arguments["dbias_ptr"]
    if dy.numel():
        _tuned[grid](**arguments)
    elif dbias is not None:
        dbias.zero_()
    return None if dz is None else dz.permute(0, 3, 1, 2), dbias


_KEY = (pow2("pixels"), "filters", "RELU", "BIAS", "MULTIPLE")
_tuned = asm_autotune(space=space, key=_KEY)(kernel)
