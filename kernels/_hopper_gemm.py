"""Matrix product in Gluon for Hopper: warps that load, warpgroups that multiply, tile after tile.

A program walks over tiles of C. One warp fills a ring of stages by the copy engine (TMA). Two or
three warpgroups multiply what it loads: each has its share of a tile's rows, or, if PINGPONG, each
of two has every other tile, so that one writes a tile while the other multiplies. Tiles are written
by the copy engine while the next are multiplied. Where tiles are few, SPLIT_K programs share the
sum of each (`gathered`).

Barriers, of which each stage has two:

- `full`: the loading warp arrives once and announces the bytes; it completes when they are there.
- `empty`: each warpgroup that reads the stage arrives once its product is done.

A wait for the n-th use of a stage waits for phase n of `full` and phase n - 1 of `empty`: a
barrier whose phase 0 is not complete lets a wait for the other parity pass, so that the first use
of a stage waits for nothing. A wait tells a phase by its parity alone, and must not be two phases
ahead. So the warpgroups of PINGPONG take turns: one waits for `full` only after the other has seen
the last stage of its tile. `turns` has a barrier for each, at which the other arrives.

Copies fill what lies outside a matrix with zeros and write nothing there, so that no extent has to
be a multiple of a tile's.

Shapes: A is (batch, M, K), B (batch, K, N), C (batch, M, N).
Dtypes: fp16, bf16. Accumulates in fp32.
Layout: A is dense along K, B along K or N; rows lie at multiples of 16 bytes, C's too.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared

from asmtune.core.config import Config
from asmtune.core.dtypes import torch_dtype
from asmtune.core.keys.buckets import pow2
from asmtune.core.space.space import Space
from asmtune.kernels._common import problems, processors
from asmtune.kernels._hopper import (
    barriers_of,
    described,
    refuse_others,
    ring_of,
    set_block,
)
from asmtune.kernels._hopper_gemm_walk import load_tiles, multiply_tiles
from asmtune.kernels._split import workspace
from asmtune.runtime.call_trace import sets_blocks
from asmtune.runtime.decorator import asm_autotune


@gluon.jit
def kernel(
    a_desc,
    b_desc,
    c_desc,
    bias_ptr,
    sums_ptr,
    count_ptr,
    batch,
    M,
    N,
    K,
    B_ALONG_K: gl.constexpr,
    ACTIVATION: gl.constexpr,
    SMS: gl.constexpr,  # noqa: ARG001 (of the grid)
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr,
    PIECES: gl.constexpr,
    CONSUMERS: gl.constexpr,
    PINGPONG: gl.constexpr,
    GROUP_M: gl.constexpr,
    SPLIT_K: gl.constexpr,
):
    """Compute every so many-th tile of C of all products, or part of a tile's sum.

    PIECES: in which a tile is written. SPLIT_K: parts of a sum.
    """
    TILING: gl.constexpr = (BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, SPLIT_K)
    PARTS: gl.constexpr = 1 if PINGPONG else CONSUMERS
    B_COLUMNS: gl.constexpr = b_desc.block_type.shape[1 if B_ALONG_K else 2]
    C_COLUMNS: gl.constexpr = c_desc.block_type.shape[2]
    c_tiles = ring_of(c_desc, CONSUMERS * (BLOCK_N // PIECES // C_COLUMNS))
    rings = (
        ring_of(a_desc, STAGES * PARTS),
        ring_of(b_desc, STAGES * (BLOCK_N // B_COLUMNS)),
        barriers_of(STAGES, 1),
        barriers_of(STAGES, PARTS),
        barriers_of(CONSUMERS, 1),
    )
    fence_async_shared()  # so that copies see the barriers
    tiles = gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N)
    sizes = (M, N, K, tiles, batch * tiles)
    operands = (a_desc, b_desc)
    results = (c_desc, bias_ptr, c_tiles, (sums_ptr, count_ptr))
    if CONSUMERS == 2:
        gl.warp_specialize(
            [
                (multiply_tiles, (results, rings, sizes, 0, TILING, B_ALONG_K, ACTIVATION)),
                (multiply_tiles, (results, rings, sizes, 1, TILING, B_ALONG_K, ACTIVATION)),
                (load_tiles, (operands, rings, sizes, TILING, B_ALONG_K)),
            ],
            [4, 1],
            [240, 24],
        )
    else:
        gl.warp_specialize(
            [
                (multiply_tiles, (results, rings, sizes, 0, TILING, B_ALONG_K, ACTIVATION)),
                (multiply_tiles, (results, rings, sizes, 1, TILING, B_ALONG_K, ACTIVATION)),
                (multiply_tiles, (results, rings, sizes, 2, TILING, B_ALONG_K, ACTIVATION)),
                (load_tiles, (operands, rings, sizes, TILING, B_ALONG_K)),
            ],
            [4, 4, 1],
            [160, 160, 24],
        )


OUTPUTS = ("c_desc",)

DTYPES = ("fp16", "bf16")

SHAPES = (
    {"batch": 1, "M": 4096, "N": 4096, "K": 4096},
    {"batch": 1, "M": 8192, "N": 8192, "K": 8192},
    {"batch": 1, "M": 1000, "N": 520, "K": 200},
)

_REGISTERS = {2: 168, 3: 128}
"""Registers of a thread: 65536 over the warps, in units of 8."""

_AXES = (
    "BLOCK_M", "BLOCK_N", "PINGPONG", "CONSUMERS", "GROUP_M", "STAGES", "PIECES", "BLOCK_K",
    "SPLIT_K",
)  # fmt: skip
_BOTH = (8, 16)
_TILES = (  # the first four, values of GROUP_M, then pairs of STAGES and PIECES
    (128, 256, False, 2, _BOTH, ((3, 1), (4, 2))),
    (256, 128, False, 2, _BOTH, ((3, 1), (4, 2))),
    (128, 128, False, 2, _BOTH, ((4, 1), (5, 1))),
    (128, 64, False, 2, _BOTH, ((6, 1),)),
    (128, 128, True, 2, _BOTH, ((4, 1), (5, 1))),
    (64, 256, True, 2, _BOTH, ((3, 1), (4, 1))),
    (64, 128, True, 2, _BOTH, ((6, 1),)),
    (128, 192, False, 2, _BOTH, ((4, 1), (5, 3))),
    (64, 192, True, 2, _BOTH, ((5, 1), (6, 3))),
    (128, 160, False, 2, _BOTH, ((5, 1),)),
    (128, 96, False, 2, (8,), ((7, 1),)),
    (256, 160, False, 2, (8,), ((4, 5),)),
    (192, 128, False, 3, (8,), ((4, 1), (5, 2))),
    (192, 192, False, 3, (8,), ((3, 1), (4, 3))),
    (256, 192, False, 2, (8,), ((3, 3),)),
)
_SPLIT_TILES = (  # of sums in parts: BLOCK_M, BLOCK_N, and STAGES
    (128, 64, 6), (128, 128, 5), (128, 192, 4), (128, 256, 3), (256, 128, 3),
)  # fmt: skip
_PARTS = (2, 4)
_LEAST_OF_A_PART = 512
"""Least extent of K of a part: eight blocks, more than a ring has stages."""


@sets_blocks
def set_blocks(values: Mapping[str, Any]) -> None:
    """Set what a config's descriptors copy at a time: its `pre_hook`.

    The extents of a block that is copied are powers of two: 192 columns are three blocks, 160 five,
    96 three of 32.
    """
    m, n, k = (values[f"BLOCK_{axis}"] for axis in "MNK")
    rows = m if values["PINGPONG"] else m // values["CONSUMERS"]
    columns = _power_in(n)
    set_block(values["a_desc"], rows, k)
    set_block(values["b_desc"], *((columns, k) if values["B_ALONG_K"] else (k, columns)))
    set_block(values["c_desc"], rows, _power_in(n // values["PIECES"]))


def _power_in(extent: int) -> int:
    """Return the largest power of two that divides an extent."""
    return extent & -extent


def space() -> Space:
    """List tiles with their stages: as many as shared memory holds, or nearly so."""
    points = [
        (*tile, group, *ring, 64, 1)
        for *tile, groups, rings in _TILES
        for ring in rings
        for group in groups
    ]
    points += [
        (m, n, False, 2, 8, stages, 1, 64, parts)
        for m, n, stages in _SPLIT_TILES
        for parts in _PARTS
    ]
    configs = [
        Config(
            dict(zip(_AXES, point, strict=True)),
            num_warps=4,
            maxnreg=_REGISTERS[point[3]],
            pre_hook=set_blocks,
        )
        for point in points
    ]
    usual = (128, 128)
    default = next(c for c in configs if (c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) == usual)
    return (
        Space.from_configs(configs, default=default)
        .where("a tile is under twice as high and wide as C", _is_of_use)
        .where("blocks of 32 columns are of a B that is dense along K", _adds_up)
        .where("tiles that do not all run at a time are in another order", _is_another_order)
        .where("a sum is split where all its parts run at a time and are long", _can_split)
    )


def _is_of_use(BLOCK_M: int, BLOCK_N: int, M: int, N: int) -> bool:
    high, wide = (max(128, triton.next_power_of_2(extent)) for extent in (M, N))
    return high >= BLOCK_M and wide >= BLOCK_N


def _adds_up(BLOCK_N: int, B_ALONG_K: bool) -> bool:
    return B_ALONG_K or BLOCK_N % 64 == 0


def _is_another_order(
    GROUP_M: int, BLOCK_M: int, BLOCK_N: int, batch: int, M: int, N: int, SMS: int
) -> bool:
    if GROUP_M == 8:
        return True
    rows, tiles = (_tiles(*z, BLOCK_M, BLOCK_N) for z in ((1, M, 1), (batch, M, N)))
    return rows > 8 and tiles > SMS


def _can_split(
    SPLIT_K: int, BLOCK_M: int, BLOCK_N: int, batch: int, M: int, N: int, K: int, SMS: int
) -> bool:
    if SPLIT_K == 1:
        return True
    tiles = _tiles(batch, M, N, BLOCK_M, BLOCK_N)
    return tiles * SPLIT_K <= SMS and SPLIT_K * _LEAST_OF_A_PART <= K


def _tiles(batch: int, M: int, N: int, BLOCK_M: int, BLOCK_N: int) -> int:
    """Count the tiles of the largest products that share a config with these."""
    return batch * triton.cdiv(triton.next_power_of_2(M), BLOCK_M) * triton.cdiv(N, BLOCK_N)


@functools.lru_cache(maxsize=4096)
def _sums_bytes(batch: int, M: int, N: int, K: int, SMS: int) -> int:
    """Give the bytes that parts of sums take at most; 0 if the space splits none.

    Tuning saves and restores this memory around every launch.
    """
    sizes = [
        _tiles(batch, M, N, m, n) * parts * m * n * 4
        for m, n, _ in _SPLIT_TILES
        for parts in _PARTS
        if _can_split(parts, m, n, batch, M, N, K, SMS)
    ]
    return triton.next_power_of_2(max(sizes)) if sizes else 0


def grid(values: Mapping[str, Any]) -> tuple[int]:
    """Give the grid: a program for each multiprocessor, or for each part of a tile if fewer."""
    tiles = triton.cdiv(values["M"], values["BLOCK_M"])
    tiles *= triton.cdiv(values["N"], values["BLOCK_N"])
    return (min(values["batch"] * tiles * values["SPLIT_K"], values["SMS"]),)


def arguments(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str = "none",
) -> dict[str, Any]:
    """Give the arguments by name of a launch that writes C, (batch, M, N)."""
    batch, M, K = a.shape
    N, sms = b.shape[2], processors(a.device)
    along_k = b.stride(2) != 1
    room = _sums_bytes(batch, M, N, K, sms)
    sums, counts = workspace(a.device, room) if room else (None, None)
    return {
        "a_desc": described(a),
        "b_desc": described(b.mT if along_k else b),
        "c_desc": described(c),
        "bias_ptr": bias,
        "sums_ptr": sums,
        "count_ptr": counts,
        "batch": batch,
        "M": M,
        "N": N,
        "K": K,
        "B_ALONG_K": along_k,
        "ACTIVATION": activation,
        "SMS": sms,
    }


def multiply(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str = "none",
) -> None:
    """Write activation(A B + bias) to C by the tuned kernel; `arguments` describes each.

    Raises:
        ValueError: the GPU, a dtype or a layout is not one that the kernel takes.
    """
    refuse_others("multiply", {"a": a, "b": b if b.stride(-1) == 1 else b.mT, "c": c})
    tuned[grid](**arguments(a, b, c, bias, activation))


def in_place_of_plain(plain: Mapping[str, Any]) -> None:
    """Compute what `matmul`'s kernel does from the arguments of its launch by name.

    Raises:
        ValueError: as `multiply` does.
    """
    operands = (plain[name] for name in ("a_ptr", "b_ptr", "c_ptr", "bias_ptr"))
    multiply(*operands, plain["ACTIVATION"])


def inputs(shape: Mapping[str, int], dtype: str, device: str) -> dict[str, Any]:
    """Make random matrices; B is (N, K) in memory, as weights are."""
    batch, M, N, K = shape["batch"], shape["M"], shape["N"], shape["K"]
    kinds = {"device": device, "dtype": torch_dtype(dtype)}
    return {"a": torch.randn((batch, M, K), **kinds), "b": torch.randn((batch, N, K), **kinds).mT}


def _problem_arguments(a: torch.Tensor, b: torch.Tensor) -> dict[str, Any]:
    c = torch.empty((*a.shape[:2], b.shape[2]), device=a.device, dtype=a.dtype)
    return arguments(a, b, c)


problem = problems(kernel, "hopper_gemm", inputs, _problem_arguments, grid, ("B_ALONG_K", "SMS"))
_KEY = ("batch", pow2("M"), "N", "K", "B_ALONG_K", "ACTIVATION")
tuned = asm_autotune(space=space, key=_KEY)(kernel)
