"""docs/kernels.md: its tables are those of the committed results."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.kernels import document

ROOT = Path(__file__).parents[2]


def row(shape: int, over_vendor: float, **changes: Any) -> dict[str, Any]:
    """A row of vector_add."""
    figures = {"p50_us": 10.0, "p90_us": 11.25, "p99_us": 1234.5, "samples": 60}
    return {
        "kernel": "vector_add",
        "group": "element-wise",
        "dtype": "fp32",
        "run": 0,
        "shape": {"n": shape},
        "over_vendor": over_vendor,
        "over_baseline": 1.5,
        "ours": figures,
        "vendor": figures,
        "baseline": {"failed": "no room"},
        "bytes_per_s": 3.5e12,
        "share_of_dram": 0.73,
        "vendor_name": "torch.add",
        **changes,
    }


def found(*rows: dict[str, Any]) -> dict[str, Any]:
    """Results of one run."""
    run = {"device": "NVIDIA H200", "triton": "3.6.0", "torch": "2.11.0", "driver": "580.1"}
    return {"mode": "events", "runs": [{**run, "date": "2026-11-21T23:00:00"}], "rows": rows}


def test_template_is_one() -> None:
    """The module that the document has its reader copy says that it is made for that."""
    page = (ROOT / "docs" / "kernels.md").read_text()
    found = re.search(r"\(\.\./(kernels/\w+\.py)\) says in its docstring", page)
    assert found is not None
    assert "template for your own" in (ROOT / found.group(1)).read_text()


@pytest.fixture
def only_vector_add(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one kernel."""
    monkeypatch.setattr(document, "KERNELS", ("vector_add",))


def test_tables(only_vector_add: None) -> None:
    """A line a kernel with geometric mean and range, and one a row with all its percentiles."""
    made = document.document(found(row(8, 2.0), row(16, 0.5)))
    assert made.startswith("NVIDIA H200, Triton 3.6.0, PyTorch 2.11.0, driver")
    assert "| **1.00** (0.50 to 2.00) | 2 |" in made
    assert "| [`vector_add`](../kernels/vector_add.py) | " in made
    times = "10.0 | 11.2 | 1,234 | 10.0 | 11.2 | 1,234 | 2.00 | 1.50 | 3,500 GB/s | 73% |"
    assert f"| n=8 | fp32 | {times}" in made
