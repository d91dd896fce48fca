"""Contents of tensors that a launch is tuned on, where no program has filled them."""

from __future__ import annotations

from typing import Any, Final

import torch
from numpy.typing import NDArray

from asmtune.core.index_values import is_index

_PIECE: Final = 1 << 22  # random numbers that are made at once for a dtype that has none


def fill(tensor: Any, seed: int, known: NDArray[Any] | None = None) -> None:
    """Fill the memory that a tensor reaches, gaps between its elements too.

    Args:
        tensor: of integers it holds what is known, or zeros; others hold random numbers.
        seed: of the random numbers.
        known: elements in the order of memory, from the first on; repeated where they are fewer.
    """
    if not tensor.numel():
        return
    reach = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    flat = tensor.as_strided((reach + 1,), (1,), tensor.storage_offset())
    if known is not None:
        _repeat(flat, torch.from_numpy(known.copy()).to(flat.device))
    elif is_index(tensor):
        flat.zero_()
    else:
        _randomize(flat, torch.Generator(flat.device).manual_seed(seed))


def _repeat(flat: Any, known: Any) -> None:
    for piece in flat.view(known.dtype).split(len(known)):
        piece.copy_(known[: len(piece)])


def _randomize(flat: Any, draw: torch.Generator) -> None:
    """Fill floating-point elements with normally distributed numbers, others with any bytes."""
    if flat.is_complex():
        flat = torch.view_as_real(flat).view(-1)
    if flat.dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        flat.normal_(generator=draw)
    elif flat.dtype.is_floating_point and "float4" not in str(flat.dtype):
        for piece in flat.split(_PIECE):
            piece.copy_(torch.randn(len(piece), generator=draw, device=flat.device))
    else:
        flat.view(torch.uint8).random_(0, 256, generator=draw)
