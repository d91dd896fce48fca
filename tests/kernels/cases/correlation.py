"""Correlation over shifts."""

from __future__ import annotations

import torch

from asmtune.core.config import Config
from asmtune.workshop.kernel_checks.tolerances import excess
from tests.kernels.accuracy import Case, launched_with, module_of


def extremes(device: str) -> dict[str, float]:
    """Sums of extremes that fill 21 bits, what is not written, and planes at other strides."""
    module, found = module_of("correlation"), {}
    generator = torch.Generator().manual_seed(3)
    maps = (torch.randint(0, 2, (2, 100, 2, 12), generator=generator) * 255 - 128).to(device)
    src0, src1 = maps.to(torch.int8).unbind()
    least = torch.full_like(src0, -128)
    kept = torch.full((16, 2, 12), 99, dtype=torch.int8, device=device)
    pairs = {
        "extremes": (src0, src1),
        "the largest sum": (least, least),
        "channels swapped": (src0[:9].transpose(0, 1), src1[:9].transpose(0, 1)),
        "every other channel": (src0[::2], src1[1::2]),
        "odd rows": (src0[..., :11].contiguous(), src1[..., :11].contiguous()),
    }
    for config in (module.DEFAULT, Config({"SHIFTS": 4, "CHANNELS": 16, "BLOCK": 16})):
        with launched_with(config, "correlation"):
            for what, (a, b) in pairs.items():
                for bits in (0, 7, 15) if what == "extremes" else (7,):
                    got, want = (f(a, b, 3, bits) for f in (module.correlation, module.baseline))
                    found[f"{what} >> {bits} by {config}"] = excess(got, want)
            # More shifts than columns: nothing is written at shift 12 and beyond.
            got = module.correlation(src0, src1, 16, 7, kept.clone())
        found[f"not written by {config}"] = excess(
            got, module.baseline(src0, src1, 16, 7, kept.clone())
        )
        left = torch.arange(12, device=device) < torch.arange(16, device=device)[:, None]
        found[f"kept by {config}"] = float((got.transpose(1, 2)[left] != 99).sum())
    return found


CASE = Case(
    shapes=(
        {"shifts": 5, "channels": 58, "height": 5, "width": 11, "out_shift": 0},
        {"shifts": 3, "channels": 7, "height": 4, "width": 32, "out_shift": 3},
        {"shifts": 1, "channels": 1, "height": 1, "width": 1, "out_shift": 0},
        {"shifts": 9, "channels": 130, "height": 3, "width": 7, "out_shift": 10},
        {"shifts": 2, "channels": 64, "height": 3, "width": 88, "out_shift": 5},
    ),
    configs=(
        Config({"SHIFTS": 4, "CHANNELS": 16, "BLOCK": 64}),
        Config({"SHIFTS": 2, "CHANNELS": 256, "BLOCK": 16}),
    ),
    varied=("src0", "src1"),
    keywords=({"shifts": 2}, {"out_shift": 31}),
    extras=(extremes,),
)
