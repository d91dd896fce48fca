"""Clip ratio and error of FP8 scales by granularity, on activations with outlier channels.

    python -m benchmarks.lowprec_groups

Needs no GPU: writes `results/lowprec_groups.json`. 17 batches of 512 tokens and 1,024 channels are
drawn with a fixed seed: channels differ in size (log-normal, sigma 1), 10 of them are 1,000 times
larger, and every channel's size varies by 10% from batch to batch. Each batch but the first is cast
to e4m3 by running scales of the batches before it.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from asmtune.measure.accuracy import measure_accuracy
from asmtune.workshop.lowprec import Granularity, Scaler, count_clipped
from benchmarks.harness import RESULTS, laid_out, write

FILE = RESULTS / "lowprec_groups.json"
BATCHES, TOKENS, CHANNELS = 17, 512, 1024
OUTLIERS, TIMES, VARIES = 10, 1000.0, 0.1
CLIP_TARGET = 1e-4
SIZES = (2, 4, 8, 16, 32, 64, 128, 256, 512)


def batches(seed: int = 0) -> list[torch.Tensor]:
    """Draw the batches."""
    draw = torch.Generator().manual_seed(seed)
    sizes = torch.exp(torch.randn(CHANNELS, generator=draw))
    sizes[torch.randperm(CHANNELS, generator=draw)[:OUTLIERS]] *= TIMES
    return [
        torch.randn(TOKENS, CHANNELS, generator=draw)
        * sizes
        * torch.exp(VARIES * torch.randn(CHANNELS, generator=draw))
        for _ in range(BATCHES)
    ]


def document(content: dict[str, Any]) -> str:
    """Tabulate what scales clip and how far off they are, by granularity."""
    columns = {"one scale per": "{name}", "scales": "{scales:,}", "clip ratio": "{clip:.2g}"}
    columns |= {"p99 of the relative error": "{p99:.4f}"}
    chosen = f"group {content['chosen']}"
    within = f"**{chosen}**, the first within {content['clip_target']:g}"
    names = ({"name": within} if row["name"] == chosen else {} for row in content["rows"])
    return laid_out(columns, map(operator.or_, content["rows"], names))


def figures(drawn: list[torch.Tensor], scaler: Scaler) -> dict[str, Any]:
    """Cast every batch but the first by the scales of those before it, as a program would.

    The relative error has the RMS of each channel of the last axis as its least denominator, since
    an outlier channel would set that of all.
    """
    clipped = 0
    cast, reference = [], []
    for place, values in enumerate(drawn):
        if place:
            clipped += count_clipped(values, scaler.scale, scaler.dtype)
            cast.append(scaler.dequantize(scaler.quantize(values)))
            reference.append(values)
        scaler.update(values)
    original = torch.stack(reference)
    usual = original.square().mean((0, 1), keepdim=True).sqrt_().clamp_(min=1e-30)
    stats = measure_accuracy(torch.stack(cast) / usual, original / usual)
    clip = clipped / original.numel()
    return {"scales": scaler.scale.numel(), "clip": clip, "p99": stats.p99}


def main() -> None:
    """Evaluate each granularity, choose the group size, and write both."""
    drawn = batches()
    blocks = {"tensor": (), "channel": (1,), **{f"group {n}": (n,) for n in SIZES}}
    rows: list[dict[str, Any]] = []
    for name, block in blocks.items():
        scaler = Scaler(Granularity(block), anomaly=1e9)  # the outliers' variation is no news
        rows.append({"name": name, **figures(drawn, scaler)})
    kept = (n for n, row in zip(SIZES, rows[2:], strict=True) if row["clip"] <= CLIP_TARGET)
    print(document(write(FILE, {"clip_target": CLIP_TARGET, "chosen": next(kept), "rows": rows})))


if __name__ == "__main__":
    main()
