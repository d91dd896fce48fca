"""Speedups over the baseline, and their geometric means, from the times of a race."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import geometric_mean, median
from typing import Any

from benchmarks.harness import device_of, table

BARS = ("full", "dispatch_off", "contract_off", "asm_off")
"""In the order of AI-Bench8."""

_SHOWN = {
    "full": "tuned",
    "dispatch_off": "defaults",
    "contract_off": "no contracts",
    "asm_off": "by chance",
}

BASELINE = "baseline"

_NONE = {"speedup": math.inf}


def speedups(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Compute by bar the speedup over the baseline, and the range that it may lie in.

    The baseline is the fastest of its launches. The range holds the 20th percentile of one
    against the 80th of the other, both ways; of several draws the speedup is the median, and
    the range is from the least to the greatest.

    Args:
        rows: the rows of one kernel's race.

    Returns:
        An empty mapping if no launch of the baseline was timed.
    """
    timed = [row for row in rows if "p50_us" in row]
    untuned = [row for row in timed if row["bar"] == BASELINE]
    if not untuned:
        return {}
    base = min(untuned, key=lambda row: float(row["p50_us"]))
    by_bar = {}
    for bar in BARS:
        mine = [row for row in timed if row["bar"] == bar]
        ratios = [base["p50_us"] / row["p50_us"] for row in mine]
        if len(ratios) > 1:
            least, most = min(ratios), max(ratios)
        elif ratios:
            least = base["p20_us"] / mine[0]["p80_us"]
            most = base["p80_us"] / mine[0]["p20_us"]
        else:
            continue
        figures = {"speedup": median(ratios), "least": least, "most": most}
        by_bar[bar] = {name: round(value, 4) for name, value in figures.items()}
    return by_bar


def summary(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Summarise: speedups by kernel, their geometric means by bar, and failures.

    A mean is of the kernels that have all bars, so that bars compare; it says how many.
    """
    by_kernel = {r["kernel"]: speedups(r.get("race", ())) for r in results}
    whole = [bars for bars in by_kernel.values() if set(bars) == set(BARS)]
    means = {
        bar: round(geometric_mean([bars[bar]["speedup"] for bars in whole]), 4)
        for bar in BARS
        if whole
    }
    failed = {
        r["kernel"]: r.get("failed") or "; ".join(_failures(r.get("race", ())))
        for r in results
        if "failed" in r or _failures(r.get("race", ()))
    }
    return {
        "geometric_mean": means,
        "kernels": len(whole),
        "speedup": by_kernel,
        "under_1": [k for k, f in by_kernel.items() if f.get("full", _NONE)["speedup"] < 1],
        "failed": failed,
    }


def document(*files: Mapping[str, Any]) -> str:
    """Tabulate the speedups by kernel, and their means, on some devices."""
    found = [data["summary"] for data in files]
    lines = []
    for kernel in found[0]["speedup"]:
        bars = [data["speedup"].get(kernel, {}).get(bar) for data in found for bar in BARS]
        lines.append([kernel, *(f"{bar['speedup']:.2f}" if bar else "-" for bar in bars)])
    means = [data["geometric_mean"].get(bar) for data in found for bar in BARS]
    lines.append(["geometric mean", *(f"{mean:.2f}" if mean else "-" for mean in means)])
    heads = (f"{device_of(data)}: {_SHOWN[bar]}" for data in files for bar in BARS)
    return table(("kernel", *heads), lines)


def _failures(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [f"{row['bar']}: {row['failed']}" for row in rows if "failed" in row]
