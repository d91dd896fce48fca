"""Registers that a kernel's matrix products need, read from TTGIR: what no cap may go below.

A product's result lies in registers while it is summed up. Its layout, which TTGIR names, says
how many elements a thread holds; tcgen05 keeps them in memory of its own, and needs none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import ceil, prod
from typing import Final

from asmtune.ir.ttir.dots import element_bits

# %r = tt.dot ... -> tensor<64x256xf32, #mma>; ttng.warp_group_dot is Hopper's wgmma.
_RESULT: Final = re.compile(
    r" = (?:tt\.dot|tt\.dot_scaled|ttng\.warp_group_dot) .* -> tensor<([\dx]+)x(\w+), (#\w+)>"
)
_LAYOUT: Final = re.compile(r"^(#\w+) = #ttg\.(\w+)<\{(.*)\}>", re.MULTILINE)
_LIST: Final = re.compile(r"(\w+) = \[([\d, ]*)\]")
_WARPS: Final = re.compile(r'"ttg\.num-warps" = (\d+)')
_WARP: Final = 32

# ptxas 12.8 and 13 name the least register target they accept: 42, 58, 90 and 154 for wgmma of
# N = 32, 64, 128 and 256, so N/2 accumulators and 26 more. mma.sync has no such limit, but 24 over
# the accumulators of five tiles on sm_80, 38 to 116 words a thread were spilled.
_BESIDES: Final = 26


def accumulator_registers(ttgir: str) -> int:
    """Registers a thread that the largest matrix product needs: accumulators and 26 more.

    Products that are alive together, as two in an attention loop are, need more than this.

    Args:
        ttgir: the module's text; its layouts are blocked or of a tensor instruction, and in any
            other the tile is shared out evenly.

    Returns:
        0 where there is no product, or none that keeps its result in registers.
    """
    found = _RESULT.findall(ttgir)
    if not found:
        return 0
    layouts = {name: _tile(kind, text) for name, kind, text in _LAYOUT.findall(ttgir)}
    warps = _WARPS.search(ttgir)
    threads = _WARP * (int(warps.group(1)) if warps else 1)
    most = 0
    for extents, element, layout in found:
        shape = [int(extent) for extent in extents.split("x")]
        held = _held(shape, layouts.get(layout), threads)
        most = max(most, ceil(held * element_bits(element) / 32))
    return most + _BESIDES


def _held(shape: Sequence[int], layout: tuple[list[int], int] | None, threads: int) -> int:
    """Elements of a tile that one thread holds.

    A layout is the tile that all threads cover at once, and how much of it each holds; a tensor
    that is larger is covered by copies of it side by side.
    """
    if layout is None:
        return ceil(prod(shape) / threads)
    covered, each = layout
    return each * prod(ceil(size / step) for size, step in zip(shape, covered, strict=False))


def _tile(kind: str, text: str) -> tuple[list[int], int] | None:
    """Extents that a layout covers, and elements a thread of them; None for one not known."""
    lists = {name: [int(n) for n in values.split(",") if n] for name, values in _LIST.findall(text)}
    warps = lists.get("warpsPerCTA", [])
    if kind == "nvidia_mma":
        # [m, n], [batch, m, n], or [m, n, k] for wgmma, as the warps have axes.
        tile = lists.get("instrShape", [])[: len(warps)]
        return [a * b for a, b in zip(tile, warps, strict=False)], prod(tile) // _WARP
    if kind == "blocked":
        each, lanes = lists.get("sizePerThread", []), lists.get("threadsPerWarp", [])
        return [a * b * c for a, b, c in zip(each, lanes, warps, strict=False)], prod(each)
    return None
