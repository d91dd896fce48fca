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

from asmtune.workshop.lowprec import Granularity, Scaler, evaluate_scaler
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


def main() -> None:
    """Evaluate each granularity, choose the group size, and write both."""
    drawn = batches()
    blocks = {"tensor": (), "channel": (1,), **{f"group {n}": (n,) for n in SIZES}}
    rows: list[dict[str, Any]] = []
    for name, block in blocks.items():
        scaler = Scaler(Granularity(block), anomaly=1e9)  # the outliers' variation is no news
        found = evaluate_scaler(drawn, scaler)
        rows.append({"name": name, "scales": found.scales, "clip": found.clip, "p99": found.p99})
    kept = (n for n, row in zip(SIZES, rows[2:], strict=True) if row["clip"] <= CLIP_TARGET)
    print(document(write(FILE, {"clip_target": CLIP_TARGET, "chosen": next(kept), "rows": rows})))


if __name__ == "__main__":
    main()
