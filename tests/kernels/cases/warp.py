"""Horizontal warp, to both sides and beyond them."""

from __future__ import annotations

import torch

from asmtune.core.config import Config
from asmtune.workshop.kernel_checks.tolerances import excess
from tests.kernels.accuracy import Case, launched_with, module_of


def offsets(device: str) -> dict[str, float]:
    """Whole, fractional and out of range offsets, pairs of the extremes, and the int16 limits."""
    module, found = module_of("warp"), {}
    width = 70
    extreme = (torch.arange(3 * width) % 2 * 255 - 128).to(torch.int8).view(3, 1, width)
    x = extreme.expand(3, 9, width).contiguous().to(device)
    rows = [0, 1, 128, 255, 256, -1, -32768, 32767, 256 * (width - 1) + 255]
    fixed = torch.tensor(rows, dtype=torch.int16, device=device)[:, None].expand(9, width)
    ramp = torch.arange(9 * width, device=device).view(9, width) * 7 - 900
    with launched_with(Config({"CHANNELS": 3, "ROWS": 2, "BLOCK": 128}), "warp"):
        for what, offset in (("fixed", fixed), ("ramp", ramp.to(torch.int16))):
            found[what] = excess(module.warp(x, offset), module.baseline(x, offset))
        got = module.warp(x, fixed)
        swapped = module.warp(x.transpose(0, 1), fixed[:3])
    found["0 keeps all"] = excess(got[:, 0], x[:, 0].double())
    moved = torch.nn.functional.pad(x[:, 4, :-1], (1, 0))
    found["256 moves a pixel to the right"] = excess(got[:, 4], moved.double())
    found["beyond all is 0"] = float(got[:, 6:8].abs().sum())
    want = module.baseline(x.transpose(0, 1), fixed[:3])
    return {**found, "channels and rows swapped": excess(swapped, want)}


CASE = Case(
    shapes=(
        {"channels": 2, "height": 7, "width": 70},
        {"channels": 1, "height": 3, "width": 1024},
        {"channels": 1, "height": 1, "width": 1},
        {"channels": 5, "height": 9, "width": 131},
        {"channels": 4, "height": 2, "width": 520},
    ),
    configs=(
        Config({"CHANNELS": 1, "ROWS": 4, "BLOCK": 128}, num_warps=2),
        Config({"CHANNELS": 4, "ROWS": 1, "BLOCK": 1024}, num_warps=4),
    ),
    varied=("x", "offset"),
    extras=(offsets,),
)
