"""What the points and roofs of a roofline are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from asmtune.report.cells import words
from asmtune.studies.roofline.points import Chart, ChartEntry
from asmtune.studies.roofline.roofs import VECTOR, Roof

MOST_LABELS: Final = 40
"""Launches beyond have no label: there is no room for more."""


def labels(entries: Sequence[ChartEntry]) -> list[str]:
    """Each launch's kernel, what of its shape tells it from the kernel's others, its speed-up."""
    return [_label(entry, [e for e in entries if e.kernel == entry.kernel]) for entry in entries]


def _label(entry: ChartEntry, alike: Sequence[ChartEntry]) -> str:
    differs: Mapping[str, Any] = {
        name: value
        for name, value in entry.shape.items()
        if any(other.shape.get(name) != value for other in alike)
    }
    faster = f"{entry.speedup:.2f}x" if entry.moved and entry.speedup is not None else ""
    about = "" if entry.measured or not faster else "~"
    guess = "?" if entry.after.counts.assumed else ""
    parts = (entry.kernel + guess, words(differs), about + faster)
    return " ".join(part for part in parts if part)


def summary(chart: Chart) -> str:
    """How many launches, and what must be known of the picture."""
    parts = [f"{len(chart.entries)} launches" if len(chart.entries) != 1 else "1 launch"]
    if any(entry.moved and not entry.measured for entry in chart.entries):
        parts.append("~: by a prediction")
    if any(not entry.after.work.flops for entry in chart.entries):
        parts.append("on the left edge those without FLOPs, at their bytes a second")
    if any(entry.after.counts.assumed for entry in chart.entries):
        parts.append("?: counts rest on a guess")
    if len(chart.entries) > MOST_LABELS:
        parts.append(f"{len(chart.entries) - MOST_LABELS} without a label")
    return "; ".join(parts)


def compute_roofs(roofs: Sequence[Roof]) -> dict[float, tuple[str, ...]]:
    """Names of the cores by their rate: types of one rate are one line."""
    found: dict[float, tuple[str, ...]] = {}
    for roof in roofs:
        if roof.kind == "compute":
            found[roof.rate] = (*found.get(roof.rate, ()), roof.name)
    return found


def compute_name(names: Sequence[str], rate: float) -> str:
    """`990 TFLOP/s fp16, bf16 tensor`."""
    tensor = [name for name in names if name != VECTOR]
    cores = [f"{', '.join(tensor)} tensor"] if tensor else []
    cores += [f"{VECTOR} cores"] if VECTOR in names else []
    return f"{rate / 1e12:.3g} TFLOP/s {', '.join(cores)}"
