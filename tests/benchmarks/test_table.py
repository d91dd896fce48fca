"""The table of `benchmarks.kernels`, with a race whose times are known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement
from asmtune.measure.timing.policy import TimingPolicy
from asmtune.measure.timing.statistics import summarise
from benchmarks.harness import Ways
from benchmarks.kernels.__main__ import line
from benchmarks.kernels.entry import Entry
from benchmarks.kernels.identities import identities
from benchmarks.kernels.plan import Plan
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

    def _race(self, launches: Ways) -> dict[str, Measurement | Failure]:
        assert [tuple(launch().shape) for launch in launches.values()] == [(N,)] * 3
        ours = summarise(Config({}), [10.0] * 98 + [10.5, 11.0])
        vendor = summarise(Config({}), [20.0] * 100)
        failed = Failure("launch", "cuda", "no room")
        return dict(zip(launches, (ours, vendor, failed), strict=True))


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
    assert found["error_by_tolerance"] == found["vendor_error_by_tolerance"] == 0.0
    assert "vector_add" in line(found)
    assert " 2.00 " in line(found)


def test_a_wrong_kernel_is_not_timed(target: Target) -> None:
    """A result that is off stops the timing, and stands in the row and in the summary."""
    found = row(1e-3, target)
    assert found["wrong"] > 1
    assert "ours" not in found
    assert "WRONG" in line(found)
    assert summary([found])["wrong"] == [f"vector_add n={N} fp32"]
    assert summary([found])["over_vendor_by_kernel"] == {}


@pytest.mark.parametrize(
    ("kernel", "count"),
    [("matmul", 60), ("attention", 30), ("attention_backward", 11)],
)
def test_wide_rows(kernel: str, count: int) -> None:
    """The wide plan has distinct problems, none of them shipped for, which build and have keys."""
    places = Plan(name="wide").places([kernel])
    keys = [{repr(key) for key, _ in identities(place)} for place in places]
    assert len(places) == len({place.name for place in places}) == count
    assert all(keys)
    assert len(set().union(*keys)) > count // 2
