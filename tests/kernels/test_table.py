"""The table of `benchmarks.kernels`, with a race whose times are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from asmtune.config import Config
from asmtune.measure import TimingPolicy
from asmtune.measure.statistics import summarise
from asmtune.records import Failure, Outcome
from asmtune.target import Target
from benchmarks.kernels.__main__ import line
from benchmarks.kernels.entry import Entry
from benchmarks.kernels.rows import Timer, summary

N = 1 << 20
SHAPE = {"n": N}
ENTRY = Entry(
    vendor_name="torch.add",
    vendor=lambda given: lambda: torch.add(given["x"], given["y"]),
    group="element-wise",
    flops=lambda shape: float(shape["n"]),
    rates={"fp32": "fp32"},
)


def adding(offset: float) -> Any:
    """A kernel module whose public function is off by so much; named as a real one."""
    return SimpleNamespace(
        __name__="asmtune.kernels.vector_add",
        inputs=lambda shape, *_: dict.fromkeys("xy", torch.ones(shape["n"])),
        vector_add=lambda x, y: x + y + offset,
        baseline=lambda x, y: x + y,
        DEFAULT=Config({"BLOCK": 1024}),
        _tuned=SimpleNamespace(best_config=Config({"BLOCK": 512})),
    )


class KnownTimer(Timer):
    """Ours takes 10 us, the vendor 20, the baseline fails; the launches are run once each."""

    def _race(self, launches: Sequence[Callable[[], Any]], label: Config) -> list[Outcome]:
        assert [tuple(launch().shape) for launch in launches] == [(N,)] * 3
        ours = summarise(label, [10.0] * 98 + [10.5, 11.0])
        vendor = summarise(label, [20.0] * 100)
        return [(label, ours), (label, vendor), (label, Failure("launch", "cuda", "no room"))]


def row(offset: float, target: Target | None) -> dict[str, Any]:
    timer = KnownTimer(TimingPolicy(), target, device="cpu")
    return timer.row(adding(offset), ENTRY, SHAPE, "fp32")


def test_figures_of_a_row(target: Target) -> None:
    """Percentiles, speedups, bandwidth and FLOP/s, with their shares of the machine's limits."""
    found = row(0.0, target)
    assert found["ours"] == {"p50_us": 10.0, "p90_us": 10.0, "p99_us": 10.505, "samples": 100}
    assert found["over_vendor"] == 2.0
    assert found["baseline"] == {"failed": "no room"}
    assert "over_baseline" not in found
    assert found["bytes"] == 3 * 4 * N
    assert found["bytes_per_s"] == pytest.approx(12 * N / 10e-6)
    assert found["share_of_dram"] == pytest.approx(12 * N / 10e-6 / 4.8e12)
    assert found["share_of_flops"] == pytest.approx(N / 10e-6 / 6.7e13)
    assert found["config"] == {"BLOCK": 512, "num_warps": 4, "num_stages": 3}
    assert found["error_by_tolerance"] == 0.0
    assert "vector_add" in line(found)
    assert " 2.00 " in line(found)


def test_an_unknown_machine_has_no_shares() -> None:
    """Without a descriptor of the GPU there are rates, and no shares of limits."""
    found = row(0.0, None)
    assert found["bytes_per_s"] > 0
    assert not [name for name in found if name.startswith("share")]


def test_a_wrong_kernel_is_not_timed(target: Target) -> None:
    """A result that is off stops the timing, and stands in the row and in the summary."""
    found = row(1e-3, target)
    assert found["wrong"] > 1
    assert "ours" not in found
    assert "WRONG" in line(found)
    assert summary([found])["wrong"] == [f"vector_add n={N} fp32"]
    assert summary([found])["over_vendor_by_kernel"] == {}


def test_summary_takes_geometric_means(target: Target) -> None:
    """Speedups multiply: 2 and 8 are 4 on average, by kernel and by group."""
    rows = [row(0.0, target), {**row(0.0, target), "over_vendor": 8.0}]
    expected = {"geometric_mean": 4.0, "least": 2.0, "rows": 2}
    found = summary(rows)
    assert found["over_vendor_by_kernel"] == {"vector_add": expected}
    assert found["over_vendor_by_group"] == {"element-wise": expected}
    assert found["wrong"] == []
