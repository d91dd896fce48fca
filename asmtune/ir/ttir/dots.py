"""Matrix products of a kernel: shapes and types from TTIR, accumulator registers from TTGIR."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import Final

# %r = tt.dot %a, %b, %c, inputPrecision = tf32 : tensor<64x32xf16> * tensor<32x256xf16>
#   -> tensor<64x256xf32>; tt.dot_scaled has a scale's type after each operand's.
_DOT: Final = re.compile(r"= tt\.dot(?:_scaled)? .*?: (tensor<.*) -> tensor<([^>]*)>")
_OPERANDS: Final = re.compile(r"(?:^|\* )tensor<([^>]*)>")
_BITS: Final = re.compile(r"\d+")


@dataclass(frozen=True)
class Dot:
    """A matrix product, (batch x) M x K times K x N.

    Attributes:
        m, n, k: extents of the tile that a program multiplies at once.
        batch: leading extent, 1 for a plain product.
        operand: MLIR's element type of the left operand ("f16", "f8E4M3FN", "i8").
        accumulator: MLIR's element type of the result ("f32", "i32").
    """

    m: int
    n: int
    k: int
    batch: int
    operand: str
    accumulator: str

    @property
    def flops(self) -> int:
        """Multiplications and additions of one execution by one program."""
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def operand_bits(self) -> int:
        """Width of an element of the left operand, as multiplied.

        A 32-bit float is multiplied as tf32, which takes 32 bits of the operand.
        """
        return element_bits(self.operand)


def element_bits(element: str) -> int:
    """Return the bits of an MLIR element type: 8 for f8E4M3FN, 16 for bf16, 1 for i1."""
    match = _BITS.search(element)
    return int(match.group()) if match else 32


def find_dots(ttir: str) -> tuple[Dot, ...]:
    """Return every dot in the order of the text, those of called functions included."""
    if "tt.dot" not in ttir:
        return ()
    return tuple(filter(None, map(_read_dot, _DOT.finditer(ttir))))


def _read_dot(match: re.Match[str]) -> Dot | None:
    operands = [_tensor(text) for text in _OPERANDS.findall(match.group(1))]
    (result, accumulator) = _tensor(match.group(2))
    if len(operands) < 2 or len(result) < 2:
        return None
    left, operand = operands[0]
    batch = 1
    for extent in result[:-2]:
        batch *= extent
    return Dot(result[-2], result[-1], left[-1], batch, operand, accumulator)


def _tensor(text: str) -> tuple[list[int], str]:
    """Parse a tensor type: `64x32xf16` gives ([64, 32], "f16"); the encoding is dropped."""
    *extents, element = text.split(",")[0].split("x")
    return [int(extent) for extent in extents], element


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
    """Return the registers a thread needs for the largest product: accumulators and 26 more.

    No register cap may go below this. A product's result lies in registers while it is summed up.
    Its layout, which TTGIR names, gives the elements a thread holds. tcgen05 keeps results in
    tensor memory and needs no registers.

    Products that are alive together, as two in an attention loop are, need more than this.

    Args:
        ttgir: the module's text; layouts other than blocked and tensor instructions' count as an
            even share of the tile.

    Returns:
        0 if there is no product, or none that keeps its result in registers.
    """
    products = _RESULT.findall(ttgir)
    if not products:
        return 0
    layouts = {name: _tile(kind, text) for name, kind, text in _LAYOUT.findall(ttgir)}
    warps = _WARPS.search(ttgir)
    threads = _WARP * (int(warps.group(1)) if warps else 1)
    most = 0
    for extents, element, layout in products:
        shape = [int(extent) for extent in extents.split("x")]
        elements = _held(shape, layouts.get(layout), threads)
        most = max(most, ceil(elements * element_bits(element) / 32))
    return most + _BESIDES


def _held(shape: Sequence[int], layout: tuple[list[int], int] | None, threads: int) -> int:
    """Return the elements of a tile that one thread holds.

    A layout is the tile that all threads cover at once, and how much of it each holds; a tensor
    that is larger is covered by copies of it side by side.
    """
    if layout is None:
        return ceil(prod(shape) / threads)
    covered, each = layout
    return each * prod(ceil(size / step) for size, step in zip(shape, covered, strict=False))


def _tile(kind: str, text: str) -> tuple[list[int], int] | None:
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
