"""A roofline as JSON and as a table: every number with its unit, and where it comes from."""

from __future__ import annotations

import json

import pytest

from asmtune.workshop.roofline.document import FORMAT, chart_json
from tests.charts import chart, entry, mixed, product


def test_the_document() -> None:
    """Units are in the names, each time says whose it is, and roofs have their sources."""
    document = json.loads(chart_json(mixed()))
    assert (document["format"], document["version"]) == (FORMAT, 1)
    assert document["date"].startswith("2025-03-04")
    roofs = {roof["name"]: roof for roof in document["roofs"]}
    assert roofs["DRAM"]["bytes_per_s"] == 4.8e12
    assert roofs["fp16"]["flops_per_s"] == 9.895e14
    assert all(roof["source"] and roof["figure"] for roof in roofs.values())
    first = document["entries"][0]
    assert (first["kernel"], first["shape"]) == ("matmul", {"M": 4096, "causal": True})
    assert (first["tuned_by"], first["speedup"], first["speedup_is"]) == (
        *("shipped", 1.75, "predicted"),
    )
    assert (first["before"]["time_is"], first["after"]["time_is"]) == ("predicted", "measured")
    assert first["before"]["time_from"] == "roofline x 1.2"
    after = first["after"]
    assert after["flops_per_byte"] == pytest.approx(after["flops"] / after["bytes"])
    assert after["flops_per_s"] == pytest.approx(after["flops"] / after["us"] * 1e6)
    assert after["share_of_roof"] == pytest.approx(7e14 / 9.895e14, rel=1e-3)
    assert after["under"] == "fp16"
    assert document["entries"][2]["speedup_is"] == "measured"


def test_what_has_one_roof() -> None:
    """Without FLOPs there is no intensity, and DRAM is the roof; without bytes the cores are."""
    copy = json.loads(chart_json(mixed()))["entries"][3]["after"]
    assert (copy["flops"], copy["flops_per_byte"], copy["under"]) == (0, None, "DRAM")
    assert copy["share_of_roof"] == pytest.approx(4e8 / 100e-6 / 4.8e12, rel=1e-3)
    still = chart([entry("spin", product(1e11, 0.0), (300.0, 200.0))])
    (one,) = json.loads(chart_json(still))["entries"]
    assert one["after"]["under"] == "fp16"
    assert one["after"]["share_of_roof"] == pytest.approx(1e11 / 200e-6 / 9.895e14, rel=1e-3)
