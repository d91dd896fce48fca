"""A record on another device, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from rich.console import Group
from rich.text import Text

from asmtune.core.hardware.model import Target
from asmtune.report.cells import dtype_words, number, one_line, words
from asmtune.report.tables import mapping_table
from asmtune.store.codec import key_digest
from asmtune.studies.retarget import Retargeted, RetargetedConfig

SHOWN: Final = 10
"""Ranks that the text shows; JSON has all."""

_FIGURES: Final = (
    "arch",
    "sms",
    "clock_hz",
    "registers_per_sm",
    "max_warps_per_sm",
    "max_threads_per_block",
    "shared_bytes_per_sm",
    "shared_bytes_per_block",
    "l2_bytes",
    "dram_bytes_per_s",
    "l2_bytes_per_s",
)
"""Figures of a device that a choice of config depends on."""


_DIFFERENCE: Final = 0.01
"""Share by which a figure of two devices must differ to be listed."""


def retargeted_json(result: Retargeted, layer: str) -> dict[str, Any]:
    """Return everything as JSON values; `ranking` is best first."""
    key = result.record.key
    return {
        "key": key_digest(key),
        "layer": layer,
        "kernel": key.kernel,
        "shape": dict(key.shape),
        "dtypes": dict(key.dtypes),
        "recorded_on": key.device,
        "target": result.target.name,
        "changed": changed_figures(result),
        "outcome": result.fate,
        "gain": None if result.gain is None else round(result.gain, 4),
        "stored": _row(result.stored),
        "best": _row(result.best),
        "evidence": result.evidence,
        "ranking": [_row(row) for row in result.ranking],
        "notes": list(result.notes),
    }


def changed_figures(result: Retargeted) -> dict[str, tuple[Any, Any]]:
    """Return the figures in which the two devices differ by a percent, as they were and are."""
    old, new = result.recorded_on, result.target
    if old is None:
        return {}
    pairs = {name: (getattr(old, name), getattr(new, name)) for name in _FIGURES}
    rates = {name: old.tensor_flops_per_s.get(name) for name in new.tensor_flops_per_s}
    pairs |= {
        f"tensor_flops_per_s.{name}": (rate, new.tensor_flops_per_s[name])
        for name, rate in rates.items()
    }
    return {name: pair for name, pair in pairs.items() if _differ(*pair)}


def _differ(old: Any, new: Any) -> bool:
    if isinstance(old, int | float) and isinstance(new, int | float):
        return abs(new / old - 1.0) >= _DIFFERENCE
    return bool(old != new)


def _row(row: RetargetedConfig) -> dict[str, Any]:
    verdict = row.verdict
    return {
        "config": verdict.config.to_dict(),
        "rank": verdict.rank,
        "expected_us": None if row.expected_us is None else round(row.expected_us, 3),
        "predicted_us": verdict.predicted_us,
        "recorded_us": row.measured_us,
        "bottleneck": verdict.bottleneck,
        "reason": row.reason or None,
    }


def retargeted_text(result: Retargeted, layer: str) -> Group:
    """Return the stored config's fate, what to use, and the first ranks."""
    key = result.record.key
    title = Text.assemble(
        (one_line(key.kernel), "bold"), f" {words(key.shape)} {dtype_words(key.dtypes)}"
    )
    rows = [
        {
            "rank": str(row.verdict.rank),
            "config": one_line(str(row.verdict.config)),
            "expected us": number(row.expected_us),
            "predicted us": number(row.verdict.predicted_us),
            f"us on {one_line(key.device)}": number(row.measured_us) or "-",
            "limit": row.verdict.bottleneck or "",
        }
        for row in result.ranking[:SHOWN]
    ]
    lines = [Text(one_line(line)) for line in _lines(result, layer)]
    notes = [Text(one_line(note), "yellow") for note in result.notes]
    heading = f"Ranking for {result.target.name}: {len(result.ranking)} configs compiled that run"
    return Group(title, *lines, mapping_table(heading, rows), *notes)


def _lines(result: Retargeted, layer: str) -> Iterator[str]:
    yield f"recorded on {result.record.key.device} ({layer}), for {_named(result.target)}"
    for name, (old, new) in changed_figures(result).items():
        yield f"  {name}: {_figure(old)} -> {_figure(new)}"
    stored, best = result.stored, result.best
    yield f"stored: {stored.verdict.config}"
    if stored.reason:
        yield f"  no longer fits: {stored.reason}"
    else:
        place = f"rank {stored.verdict.rank}, expected {number(stored.expected_us)} us"
        behind = f"{result.gain or 0.0:.1%} behind the first"
        yield f"  {result.fate}: {place}, {behind}"
    same = " (the stored one)" if best == stored else ""
    yield f"use: {best.verdict.config}{same}, expected {number(best.expected_us)} us"
    yield f"evidence: {result.evidence}"


def _named(target: Target) -> str:
    return f"{target.name} ({target.arch})"


def _figure(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.6g}" if isinstance(value, float) else str(value)
