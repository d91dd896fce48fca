"""The GEMM: its problems without a GPU, and its results under Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

from asmtune.kernels import tiled_matmul as matmul


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ((2, 3), (4, 2), r"a is \(2, 3\), b is \(4, 2\); they must be \(M, K\) and \(K, N\)"),
        ((2, 3), (3,), r"a is \(2, 3\), b is \(3,\); they must be"),
        ((3,), (3, 2), r"a is \(3,\), b is \(3, 2\)"),
        ((2, 3, 3), (3, 2), r"a is \(2, 3, 3\)"),
    ],
)
def test_shapes_that_do_not_fit(a: tuple[int, ...], b: tuple[int, ...], message: str) -> None:
    """Operands that are no matrices, or do not fit, are refused with their shapes."""
    with pytest.raises(ValueError, match=message):
        matmul.tiled_matmul(
            torch.zeros(a, dtype=torch.float16), torch.zeros(b, dtype=torch.float16)
        )


def halves(*extents: int) -> torch.Tensor:
    """A matrix without memory."""
    return torch.empty(extents, dtype=torch.float16, device="meta")


@pytest.mark.parametrize(
    ("a", "b", "name"),
    [
        (halves(1 << 16, 1 << 15), halves(1 << 15, 8), "a"),
        (halves(8, 1 << 15), halves(1 << 16, 1 << 15).mT, "b"),
        (halves(1 << 16, 8), halves(8, 1 << 15), "c"),
    ],
)
def test_matrices_further_than_32_bits_are_refused(
    a: torch.Tensor, b: torch.Tensor, name: str
) -> None:
    """Offsets that would wrap are refused before anything is launched; a long K alone has none."""
    with pytest.raises(ValueError, match=f"tiled_matmul: a tile of {name} lies up to 21"):
        matmul.tiled_matmul(a, b)
    matmul._check_reach(halves(1 << 28, 16).mT, halves(1 << 28, 16))
