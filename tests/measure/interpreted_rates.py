"""Run with TRITON_INTERPRET=1: the kernel that reads L2, on the CPU."""

from __future__ import annotations

import torch

from asmtune.measure.rates import nothing, read_again


def sums(tiles: int, steps: int, programs: int, block: int) -> list[float]:
    """Return the sums of what each program reads of 0, 1, 2, and so on."""
    values = torch.arange(float(tiles * block))
    out = torch.zeros(programs)
    read_again[(programs,)](values, out, tiles, steps, BLOCK=block)
    nothing[(1,)]()
    return out.tolist()
