"""Upsampling by two, by words and by single pixels."""

from __future__ import annotations

import torch

from asmtune.core.config import Config
from asmtune.workshop.kernel_checks.tolerances import excess
from tests.kernels.accuracy import Case, launched_with, module_of


def extremes(device: str) -> dict[str, float]:
    """Pairs of all int8 values, the least and the largest alone, and no image at all."""
    module, found = module_of("resize"), {}
    all_ = torch.arange(-128, 128, device=device).to(torch.int8)
    # The interpreter takes less: beside every byte each bit is 0 and 1, under all carries.
    beside = torch.cat((all_[:16], all_[128:144], all_[-16:])) if device == "cpu" else all_
    pairs = torch.stack((all_.repeat(len(beside)), beside.repeat_interleave(256)))
    generator = torch.Generator().manual_seed(3)
    extreme = (torch.randint(0, 2, (2, 9, 64), generator=generator) * 255 - 128).to(torch.int8)
    images = {
        "every pair": pairs[None],
        "extremes by words": extreme.to(device),
        "extremes by pixels": extreme[..., :61].to(device),
        "a last word": extreme[:, :, :4].contiguous().to(device),
        "channels swapped": extreme.to(device).transpose(0, 1),
    }
    with launched_with(module.DEFAULT, "resize"):
        for what, image in images.items():
            found[what] = excess(module.resize(image), module.baseline(image))
        empty = module.resize(all_[:0].view(0, 4, 4))
    found["nothing"] = 0.0 if empty.shape == (0, 8, 8) else 2.0
    return found


CASE = Case(
    shapes=(
        {"channels": 2, "height": 7, "width": 36},
        {"channels": 1, "height": 8, "width": 512},
        {"channels": 1, "height": 1, "width": 1},
        {"channels": 3, "height": 5, "width": 131},
        {"channels": 2, "height": 3, "width": 1028},
        {"channels": 1, "height": 2, "width": 130},
    ),
    configs=(
        Config({"ROWS": 1, "BLOCK": 128}, num_warps=1),
        Config({"ROWS": 8, "BLOCK": 2048}, num_warps=4),
    ),
    varied=("x",),
    extras=(extremes,),
)
