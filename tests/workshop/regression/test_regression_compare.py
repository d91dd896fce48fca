"""Verdicts on rows, and what may not be compared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from asmtune.core.config import Config
from asmtune.workshop.regression.compare import Check, Terms, compare, needed
from asmtune.workshop.regression.run import BenchRun, Process, UntimedSubject
from tests.workshop.regression.bench_runs import (
    HERE,
    part_of,
    run_of,
    scaled,
    simulated,
    subject,
    timed,
)

STEADY = {"one": 10.0, "two": 400.0}


def verdicts(check: Check) -> dict[str, str]:
    """Give the verdicts of each kernel."""
    return {finding.subject.kernel: finding.verdict for finding in check.findings}


def test_what_is_in_one_run_alone() -> None:
    """A row of one run alone is new or gone; equal times are unchanged; another config is said."""
    old, new = simulated(0, one=10.0, two=20.0), simulated(1, two=20.0, three=5.0)
    rows = tuple(replace(row, config=Config({"BLOCK": 64})) for row in new.rows)
    check = compare(old, replace(new, rows=rows), Terms())
    assert verdicts(check) == {"one": "gone", "two": "unchanged", "three": "new"}
    assert check.outcome == "fine"
    assert check.findings[1].remark.startswith("config was BLOCK=1024 num_warps=4")
    flat = run_of(timed("one", [[10.0]] * 8))
    assert verdicts(compare(flat, flat, Terms(threshold=1e-9))) == {"one": "unchanged"}


@pytest.mark.parametrize(("why", "verdict"), [("failed", "failed"), ("unknown", "gone")])
def test_a_kernel_that_ran_before(why: str, verdict: str) -> None:
    """A kernel that fails now is worse than a slow one; one without a stored config is gone."""
    base, run = simulated(0, **STEADY), simulated(1, two=400.0)
    run = replace(run, missed=(UntimedSubject(subject("one"), why, "ptxas at cubin: no"),))
    check = compare(base, run, Terms())
    assert verdicts(check) == {"one": verdict, "two": "unchanged"}
    assert check.outcome == ("slower" if why == "failed" else "fine")
    assert check.findings[0].remark == "ptxas at cubin: no"


def test_both_significance_and_threshold() -> None:
    """2% more is significant here and below the threshold; a lower threshold calls it slower."""
    rows = [[10.0 + 0.001 * n] for n in range(8)]
    base = run_of(timed("one", rows))
    run = scaled(base, 1.02, lambda _: True)
    assert verdicts(compare(base, run, Terms())) == {"one": "unchanged"}
    found = compare(base, run, Terms(threshold=0.01))
    assert verdicts(found) == {"one": "slower"}
    (finding,) = found.findings
    assert finding.ratio == pytest.approx(1.02)
    assert finding.chance == pytest.approx(1 / 12870)
    assert finding.limit_us == pytest.approx(1.01 * base.rows[0].median_us)


def test_processes_are_the_unit() -> None:
    """Thousands of samples of two processes show nothing: one may have been unlucky."""
    base = run_of(timed("one", [[10.0, 10.1] * 500] * 2))
    check = compare(base, scaled(base, 2.0, lambda _: True), Terms())
    assert (check.outcome, verdicts(check)) == ("incomparable", {"one": "not judged"})
    assert "2 and 2 processes show nothing at this level" in check.findings[0].remark
    assert "asmtune bench --processes 5" in check.findings[0].remark


@pytest.mark.parametrize(("rows", "processes"), [(1, 5), (2, 5), (3, 6), (9, 6), (128, 8)])
def test_processes_needed(rows: int, processes: int) -> None:
    """So many processes a side find a row that is slower throughout, and one fewer does not."""
    assert needed(rows, 0.01) == processes
    values = [10.0 + 0.001 * n for n in range(processes)]
    names = [f"kernel{place}" for place in range(rows)]
    base = run_of(*(timed(name, [[value] for value in values]) for name in names))
    slow = scaled(base, 1.5, lambda s: s.kernel == "kernel0")
    assert verdicts(compare(base, slow, Terms()))["kernel0"] == "slower"
    fewer = part_of(slow, range(processes - 1))
    assert verdicts(compare(part_of(base, range(processes - 1)), fewer, Terms()))["kernel0"] == (
        "not judged"
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"gpu": "NVIDIA A100"}, "another GPU"),
        ({"driver": "590.2"}, "another driver"),
        ({"board": "ba9876543210"}, "another board"),
        ({}, "timed otherwise: flush_bytes was 268435456, and is 0"),
    ],
)
def test_another_place_is_said_and_not_judged(change: dict[str, str], says: str) -> None:
    """Twice the time on another GPU, driver or board, or of warm caches, is no verdict."""
    base = simulated(0, **STEADY)
    slow = scaled(simulated(1, **STEADY), 2.0, lambda _: True)
    slow = replace(slow, environment=replace(HERE, **change))
    if not change:
        slow = replace(slow, timing={**slow.timing, "flush_bytes": 0})
    check = compare(base, slow, Terms())
    assert check.outcome == "incomparable"
    assert set(verdicts(check).values()) == {"not judged"}
    (obstacle,) = check.obstacles
    assert obstacle.startswith(says)
    if "board" in change:
        check = compare(base, slow, Terms(any_board=True))
        assert check.outcome == "slower"
        assert any(remark.startswith("board: 0123456789ab before") for remark in check.remarks)
        unknown = replace(slow, environment=replace(HERE, board=""))
        assert compare(base, unknown, Terms()).outcome == "slower"


def test_versions_and_clocks_are_said_and_judged() -> None:
    """A newer Triton may be what made a kernel slower: it is said beside the verdict."""
    base = with_clocks(simulated(0, **STEADY), {"sm_mhz": 1980})
    newer = replace(HERE, versions={**HERE.versions, "triton": "3.7.0"})
    slow = replace(scaled(simulated(1, **STEADY), 1.2, lambda _: True), environment=newer)
    slow = with_clocks(slow, {"sm_mhz": 1500, "throttled_by": ["power cap"]})
    check = compare(base, slow, Terms())
    assert check.outcome == "slower"
    assert check.remarks == (
        "triton: 3.6.0 before, 3.7.0 now",
        "SM clock: 1980 MHz before, 1500 MHz now",
        "the run's clocks were held back by power cap",
    )


def with_clocks(run: BenchRun, clocks: dict[str, Any]) -> BenchRun:
    """A run whose processes all ended at these clocks."""
    return replace(run, processes=tuple(Process(p.date, clocks) for p in run.processes))
