"""Rates and efficiency of bench runs: curves over sizes, best working points, and how they look."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asmtune.core.hardware.shipped import load_target
from asmtune.workshop.regression.bench_page import bench_figure, bench_json, bench_table
from asmtune.workshop.regression.efficiency import EfficiencyCurve, curves_of
from asmtune.workshop.regression.run import (
    BenchRun,
    BenchSubject,
    LaunchLoad,
    TimedSubject,
    run_from_json,
    run_to_json,
)
from tests.report.widths import rendered
from tests.workshop.regression.bench_runs import CONFIG, HERE, run_of

H200 = load_target("H200")


def product(size: int, us: float, energy_mj: float | None = None) -> TimedSubject:
    """A square product in fp16 that takes so long, in two processes."""
    load = LaunchLoad("fp16", 2.0 * size**3, 6.0 * size**2)
    subject = BenchSubject("product", {"n": size}, "fp16")
    return TimedSubject(subject, CONFIG, "store", "", ((us,) * 5, (us,) * 5), load, energy_mj)


def curve_of(run: BenchRun) -> EfficiencyCurve:
    """The only curve of a run."""
    (curve,) = curves_of(run)
    return curve


def test_rates_and_shares() -> None:
    """GOPS, GB/s, GOPS/W and the share of the roofline follow from load, time and energy."""
    rate = H200.tensor_flops_per_s["fp16"]
    ideal_us = 2 * 4096**3 / rate * 1e6
    curve = curve_of(run_of(product(4096, 2 * ideal_us, energy_mj=100.0), product(256, 8.0)))
    small, large = curve.points
    assert curve.basis == "roofline"
    assert large.gops == pytest.approx(rate / 2 / 1e9)
    assert large.gops_per_w == pytest.approx(2 * 4096**3 / 1e9 / 0.1)
    assert large.gbytes_per_s == pytest.approx(6 * 4096**2 / (2 * ideal_us) / 1e3)
    assert curve.efficiencies[1] == pytest.approx(0.5)
    assert small.gops_per_w is None
    memory_us = 6 * 256**2 / H200.dram_bytes_per_s * 1e6
    assert small.roofline_share == pytest.approx(memory_us / 8.0)
    assert curve.best is large


def test_a_device_that_nothing_describes() -> None:
    """Without a roofline the share is that of the best rate of all sizes."""
    unknown = replace(HERE, gpu="Some GPU")
    curve = curve_of(run_of(product(512, 10.0), product(1024, 20.0), environment=unknown))
    assert curve.basis == "best rate"
    assert curve.efficiencies == (pytest.approx(0.25), 1.0)
    assert curve.best.row.subject.shape == {"n": 1024}


@given(
    st.lists(
        st.tuples(st.integers(16, 8192), st.floats(0.5, 1e4)),
        min_size=1,
        max_size=12,
        unique_by=lambda pair: pair[0],
    )
)
def test_curves_are_in_order(sizes: list[tuple[int, float]]) -> None:
    """A curve has every size once, the smallest first; none is more efficient than the best."""
    curve = curve_of(run_of(*(product(size, us) for size, us in sizes)))
    assert [p.row.subject.shape["n"] for p in curve.points] == sorted(n for n, _ in sizes)
    assert max(curve.efficiencies) == curve.efficiencies[curve.points.index(curve.best)]


def test_load_and_energy_are_kept() -> None:
    """A run's file holds them; one that was written without is read, and has no curve."""
    run = run_of(product(250, 8.0, energy_mj=1.5))
    document = json.loads(json.dumps(run_to_json(run)))
    assert run_from_json(document, "run") == run
    (row,) = document["rows"]
    del row["load"], row["energy_mj"]
    older = run_from_json(document, "run")
    assert curves_of(older) == ()
    assert older.rows[0].statistics == run.rows[0].statistics


def test_reports() -> None:
    """Table and JSON have statistics, rates, the best working point and what is unsteady."""
    noisy = replace(product(256, 8.0), samples=((8.0,) * 19 + (16.0,),))
    run = run_of(product(1024, 10.0, energy_mj=2.0), noisy)
    text = rendered(bench_table(run), 200)
    best = "product fp16: best working point n=1024: 214748.4 GOPS, "
    assert best in text
    assert "product n=256: RSD 21.3% of 20 samples stays above 5%" in text
    document = json.loads(bench_json(run))
    assert (document["format"], document["version"]) == ("asmtune-efficiency", 1)
    assert [row["steady"] for row in document["rows"]] == [True, False]
    assert document["rows"][1]["statistics"]["p99_us"] == pytest.approx(8 + 0.81 * 8)
    (curve,) = document["curves"]
    assert curve["best"] == {"n": 1024}
    assert [point["shape"]["n"] for point in curve["points"]] == [256, 1024]
    assert curve["points"][1]["gops_per_w"] == pytest.approx(2 * 1024**3 / 2.0 / 1e6)


def test_the_figure() -> None:
    """The figure is drawn in each form, and equal runs make equal files."""
    pytest.importorskip("matplotlib", reason="no matplotlib: pip install '.[figures]'")
    run = run_of(product(256, 8.0), product(1024, 10.0))
    svg = bench_figure(run, ".svg")
    assert svg.startswith(b"<?xml")
    assert svg == bench_figure(run, ".svg")
    assert bench_figure(run, ".png").startswith(b"\x89PNG")
