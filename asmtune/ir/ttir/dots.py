"""Matrix products of a kernel: every `tt.dot` of its TTIR, with shapes and types."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

# %r = tt.dot %a, %b, %c, inputPrecision = tf32 : tensor<64x32xf16> * tensor<32x256xf16>
#   -> tensor<64x256xf32>; tt.dot_scaled has a scale's type after each operand's.
_DOT: Final = re.compile(r"= tt\.dot(?:_scaled)? .*?: (tensor<.*) -> tensor<([^>]*)>")
_OPERANDS: Final = re.compile(r"(?:^|\* )tensor<([^>]*)>")
_BITS: Final = re.compile(r"\d+")


@dataclass(frozen=True)
class Dot:
    """One matrix product, (batch x) M x K times K x N.

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
    """Bits of an MLIR element type: f8E4M3FN has 8, bf16 has 16, i1 one."""
    found = _BITS.search(element)
    return int(found.group()) if found else 32


def find_dots(ttir: str) -> tuple[Dot, ...]:
    """Every dot in the order of the text; called functions' dots included."""
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
    """`64x32xf16` gives ([64, 32], "f16"); an encoding after a comma is dropped."""
    *extents, element = text.split(",")[0].split("x")
    return [int(extent) for extent in extents], element
