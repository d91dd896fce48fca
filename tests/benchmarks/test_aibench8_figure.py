"""The figure of AI-Bench8: drawn from a file alone, from 0, every bar as high as its figure."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.aibench8 import figure
from benchmarks.aibench8.summary import BARS, summary

pytest.importorskip("matplotlib", reason="no matplotlib: pip install '.[figures]'")
from matplotlib.figure import Figure


def found(kernels: int = 2) -> dict[str, Any]:
    """A small file: each kernel is twice as fast as the one before."""
    results = []
    for number in range(kernels):
        rows = [{"bar": "baseline", "p20_us": 30.0, "p50_us": 32.0, "p80_us": 36.0}]
        for place, bar in enumerate(BARS):
            us = 2.0 ** (place - number)
            rows.append({"bar": bar, "p20_us": 0.9 * us, "p50_us": us, "p80_us": 1.1 * us})
        results.append({"kernel": f"kernel{number}", "race": rows})
    return {"meta": {"device": "NVIDIA H200"}, "summary": summary(results), "results": results}


def drawn(content: dict[str, Any]) -> Any:
    """Its axes."""
    axis = Figure().subplots()
    figure.draw_on(axis, content)
    return axis


def test_bars_begin_at_0() -> None:
    """The axis and all bars begin at 0, and no bar or range leaves the axis."""
    axis = drawn(found())
    assert axis.get_xlim()[0] == 0.0
    assert all(bar.get_x() == 0.0 for bar in axis.patches)
    tops = [*(bar.get_width() for bar in axis.patches)]
    tops += [x for line in axis.lines for x in line.get_xdata()]
    assert max(tops) < axis.get_xlim()[1]


def test_groups_of_bars() -> None:
    """Each kernel has its four bars side by side, and their means stand last."""
    axis = drawn(found())
    assert [label.get_text() for label in axis.get_yticklabels()] == [
        "kernel0",
        "kernel1",
        figure.MEAN,
    ]
    bars = {group.get_label(): group.patches for group in axis.containers}
    assert list(bars) == [figure.NAMES[bar] for bar in BARS]
    assert [bar.get_width() for bar in bars[figure.NAMES["full"]]] == pytest.approx(
        [32, 64, (32 * 64) ** 0.5], abs=1e-3
    )
    assert [bar.get_width() for bar in bars[figure.NAMES["asm_off"]]] == pytest.approx(
        [4, 8, 32**0.5], abs=1e-3
    )
    edges = sorted((bar.get_y(), bar.get_y() + bar.get_height()) for bar in axis.patches)
    assert all(right <= left + 1e-9 for (_, right), (left, _) in itertools.pairwise(edges))


def test_a_kernel_without_figures_has_no_bars() -> None:
    """What failed takes no place, and a bar that is missing leaves a gap."""
    content = found()
    content["summary"]["speedup"]["kernel0"] = {}
    del content["summary"]["speedup"]["kernel1"]["asm_off"]
    axis = drawn(content)
    assert [label.get_text() for label in axis.get_yticklabels()] == ["kernel1", figure.MEAN]
    assert len(axis.patches) == 2 * len(BARS) - 1


@pytest.mark.slow
def test_files(tmp_path: Path) -> None:
    """A PNG is written beside the results, or into a folder; equal for equal results."""
    results, again = tmp_path / "aibench8.json", tmp_path / "again"
    results.write_text(json.dumps(found()))
    again.mkdir()
    figure.main([str(results)])
    figure.main([str(results), "--output", str(again)])
    first = (tmp_path / "aibench8.png").read_bytes()
    assert first.startswith(b"\x89PNG")
    assert first == (again / "aibench8.png").read_bytes()
