"""What the pages say of measurements is what the result files say."""

from __future__ import annotations

import math
import re
from pathlib import Path
from statistics import fmean

import pytest

from website.blocks import pages
from website.files import TABLES, results
from website.numbers import written

PAGE = Path("page.md")


def test_pages_say_what_the_files_say() -> None:
    """No table of a page differs from its file: `python -m website.numbers` writes them."""
    stale = [page.name for page in pages() if written(page.read_text(), page) != page.read_text()]
    assert stale == []


def test_figures_of_the_front_page() -> None:
    """README's three figures are the packages' and the launches' own, and none is scaled."""
    table = TABLES["figures"]()
    first, speed, launch = (
        [cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()[2:]
    )
    summary = results("packages")["summary"]
    seconds, speeds = summary["first_s"], summary["speed"]["asmtune"]
    assert f"{summary['operations']} operations of {summary['programs']} " in first[0]
    assert first[1:3] == [f"{seconds['asmtune']:.0f} s", f"{seconds['plain']:.0f} s"]
    mean, without, worst = re.findall(r"\d\.\d{3}", speed[1])
    assert (mean, worst) == (f"{speeds['geomean']:.3f}", f"{speeds['worst']:.3f}")
    lines = TABLES["packages"]().splitlines()[2:]
    logs = sorted(math.log(float(line.split("|")[5])) for line in lines if line.startswith("|"))
    assert float(without) == pytest.approx(math.exp(fmean(logs[:-1])), abs=6e-4)
    us = results("launch_cost")["19 arguments"]
    for cell, name in ((launch[1], "asm_autotune"), (launch[2], "triton.autotune")):
        found = [us[f"{name}, grid of a function"], us[name]]
        assert re.findall(r"[\d.]+", cell) == [f"{row['median_us']:.1f}" for row in found]
    assert all("NVIDIA H200" in row[3] and ".json]" in row[3] for row in (first, speed, launch))
    assert "*" not in table


def test_every_table_is_used() -> None:
    """A table that no page shows would be held to nothing."""
    text = "".join(page.read_text() for page in pages())
    assert [name for name in TABLES if f"<!-- table: {name} -->" not in text] == []


def test_tables_are_written() -> None:
    """What stood in a table's place goes."""
    made = written("a\n<!-- table: launches -->\nold\n<!-- end -->\nb", PAGE)
    assert "old" not in made
    assert "| `asm_autotune` | " in made
    assert made.startswith("a\n<!-- table")
    assert made.endswith("<!-- end -->\nb")
