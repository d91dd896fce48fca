"""Limits of errors: files, tolerance by a history, planted faults, no alarm without one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import binom, norm

from asmtune.base.errors import InputError
from asmtune.measure.accuracy import Bound, measure_accuracy
from asmtune.workshop.regression.accuracy_guard import (
    ErrorLimits,
    Guard,
    limit_of,
    read_thresholds,
    stricter,
    write_thresholds,
)
from asmtune.workshop.regression.accuracy_inputs import distributed
from asmtune.workshop.regression.accuracy_run import AccuracyRequest, AccuracyRun
from asmtune.workshop.regression.accuracy_subject import load_subject
from asmtune.workshop.regression.check_page import check_json, check_markdown, trend_figure
from asmtune.workshop.regression.history import (
    HistoryEntry,
    extended,
    reach_of,
    read_history,
    record,
)
from asmtune.workshop.regression.run import BenchSubject
from benchmarks.accuracy import CHECK, PAGE, RESULTS, guard_section

SCALES = Path(__file__).parents[3] / "examples" / "fp8_scales.py"
LEVEL = 0.01
RUNS = 200


class Kernel:
    """FP8 round trips with a scale a channel, one of whose scales can be made wrong."""

    def __init__(self, rows: int, channels: int, inputs: str = "random") -> None:
        shape = {"rows": rows, "cols": channels}
        subject = load_subject(f"{SCALES}:per_channel", shape, None)
        self._subject, self._inputs = subject, inputs
        self._first = AccuracyRequest.of(subject, {}, "fp64", inputs).run("cpu", 0)

    def run(self, seed: int, *, doubled: bool = False) -> AccuracyRun:
        """Measure on inputs of a seed, as a request does: the first run stands for the rest."""
        torch.manual_seed(seed)
        make = partial(self._subject.module.inputs, self._subject.shape, "fp32", "cpu")
        x = distributed(make, self._inputs)
        y = self._subject.function(**x)["y"]
        if doubled:
            y[:, 3] *= 2
        row = replace(self._first.rows[0], stats=measure_accuracy(y, x["x"].double()))
        return replace(self._first, rows=(row,), seed=seed, label=f"run {seed}")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors on two threads take ten times the CPU."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_the_kernel_of_these_tests_runs_as_a_request_does() -> None:
    """It has the statistics of an accuracy run of the same seed."""
    subject = load_subject(f"{SCALES}:per_channel", {"rows": 8, "cols": 32}, None)
    for inputs in ("random", "heavy-tailed"):
        run = AccuracyRequest.of(subject, {}, "fp64", inputs).run("cpu", 7)
        assert Kernel(8, 32, inputs).run(7).rows[0].stats == run.rows[0].stats


def guarded(
    runs: list[AccuracyRun],
) -> tuple[list[str], tuple[ErrorLimits, ...], tuple[HistoryEntry, ...]]:
    """Judge runs one after another as the command does; outcomes, last limits and history."""
    limits: tuple[ErrorLimits, ...] = ()
    history: tuple[HistoryEntry, ...] = ()
    outcomes = []
    for run in runs:
        guard = Guard(limits, history, adapts=True, level=LEVEL)
        outcomes.append(guard.judge(run).outcome)
        if outcomes[-1] != "worse":
            limits = guard.tightened(run)
        history = extended(history, replace(run.entry, outcome=outcomes[-1]))
    return outcomes, limits, history


@pytest.mark.slow
@pytest.mark.parametrize("inputs", ["random", "heavy-tailed"])
def test_no_alarm_without_a_fault_and_one_with(inputs: str) -> None:
    """Of 200 unchanged runs no more alarm than the level says; a doubled scale does, by name."""
    kernel = Kernel(64, 64, inputs)
    runs = [kernel.run(seed) for seed in range(RUNS)]
    outcomes, limits, history = guarded(runs)
    assert outcomes.count("incomparable") == 5
    assert outcomes.count("worse") <= LEVEL * RUNS
    guard = Guard(limits, history, adapts=True, level=LEVEL)
    check = guard.judge(kernel.run(RUNS, doubled=True))
    worse = {
        finding.metric: finding.remark for finding in check.findings if finding.verdict == "worse"
    }
    assert check.outcome == "worse"
    assert "p99" in worse
    assert "scales of a few channels" in worse["p99"]


def test_the_page_has_the_alarms_of_the_committed_runs() -> None:
    """Of 200 unchanged runs no more were alarms than the level allows, and the page says it."""
    document = json.loads(RESULTS.read_text())
    assert [row["inputs"] for row in document["guard"]] == ["random", "heavy-tailed"]
    for row in document["guard"]:
        assert (row["runs"], row["level"], row["found"]) == (RUNS, LEVEL, True)
        assert row["alarms"] <= row["level"] * row["judged"]
    assert CHECK[0] + guard_section(document) + CHECK[1] in PAGE.read_text()


def test_a_doubled_scale_is_found_after_five_runs() -> None:
    """Limits of the shortest history find it too, and are not loosened by it."""
    kernel = Kernel(64, 32)
    outcomes, limits, history = guarded([kernel.run(seed) for seed in range(6)])
    assert outcomes == ["incomparable"] * 5 + ["fine"]
    guard = Guard(limits, history, adapts=True, level=LEVEL)
    assert guard.judge(kernel.run(9, doubled=True)).outcome == "worse"
    assert guard.judge(kernel.run(9)).outcome == "fine"


def test_a_kept_limit_covers_what_it_says() -> None:
    """Nearly every history's limit leaves the share above it at most; mean + 3 sd does not."""
    draws = np.random.default_rng(0).normal(size=(2_000, 5))
    mean, sd, share = draws.mean(1), draws.std(1, ddof=1), 0.00135
    reach = [reach_of(list(row), share, kept=True) for row in draws]
    above = norm.sf(mean + np.array(reach, float))
    assert (above > share).mean() <= binom.ppf(0.999, 2_000, 0.001) / 2_000
    assert norm.sf(mean + 3 * sd).mean() > 10 * share
    k = [(reach_of([-1.0, 1.0] * half, share, kept=True) or 0.0) for half in (3, 10, 50, 5000)]
    assert k == sorted(k, reverse=True)
    assert k[-1] == pytest.approx(3.0, rel=0.05)


def test_a_broken_run_widens_no_limit() -> None:
    """A run that broke a limit is kept, and later limits are computed without it."""
    kernel = Kernel(64, 32)
    _, _, history = guarded([kernel.run(seed) for seed in range(6)])
    guard = Guard((), history, adapts=True)
    broken = kernel.run(9, doubled=True)
    assert guard.judge(broken).outcome == "worse"
    entry = replace(broken.entry, outcome="worse")
    after = replace(guard, history=extended(history, entry))
    assert len(after.history) == 7
    assert after.judge(kernel.run(10)) == guard.judge(kernel.run(10))
    assert after.judge(kernel.run(11, doubled=True)).outcome == "worse"
    unflagged = replace(guard, history=extended(history, broken.entry))
    assert unflagged.judge(kernel.run(11, doubled=True)).outcome == "fine", "what the flag is for"


def test_limits_of_what_hardly_scatters() -> None:
    """Equal values allow their resolution, no clipping a few elements, no error a rounding."""
    row = replace(Kernel(8, 32).run(0).rows[0], dtype="bf16")
    row = replace(row, stats=replace(row.stats, elements=1000))
    assert limit_of([0.1] * 4, row, 0.001, "p99") is None
    limit = limit_of([0.1] * 20, row, 0.001, "p99")
    assert limit is not None
    assert 0.1 < limit < 0.102
    clip = limit_of([0.0] * 100, row, 0.001, "clip")
    assert clip is not None
    assert 0 < clip < 2e-3
    assert limit_of([0.0] * 9, row, 0.001, "p99") == 2**-8, "half of bfloat16's eps"
    assert limit_of([0.0] * 9, replace(row, dtype="i8"), 0.001, "p99") == 0.0


def test_quantiles_need_enough_elements() -> None:
    """A quantile beyond which fewer than ten elements lie or an empty output gets no limit."""
    kernel = Kernel(16, 64)
    runs = [kernel.run(seed) for seed in range(6)]
    guard = Guard((), tuple(run.entry for run in runs[1:]), adapts=True)
    (limits,) = guard.tightened(runs[0])
    assert limits.bound.p99 is not None
    assert limits.bound.p999 is None
    assert "p999" not in {finding.metric for finding in guard.judge(runs[0]).findings}
    empty = replace(runs[0].rows[0], stats=measure_accuracy(torch.ones(0), torch.ones(0)))
    assert guard.judge(replace(runs[0], rows=(empty,))).outcome == "incomparable"


SUBJECT = BenchSubject("one", {"n": 1}, "fp16", "one, random, against fp64")


def test_the_stricter_limit_is_kept() -> None:
    """Each limit is the smaller of old and new, `cosine` the larger; other rows stay."""
    other = ErrorLimits(replace(SUBJECT, kernel="two"), Bound(clip=0.5))
    old = (ErrorLimits(SUBJECT, Bound(p99=0.1, p90=0.2, cosine=0.9, max_abs=4.0)), other)
    new = (ErrorLimits(SUBJECT, Bound(p99=0.2, p90=0.1, cosine=0.99, clip=0.0)),)
    merged = stricter(old, new)
    assert merged[0].bound == Bound(p99=0.1, p90=0.1, cosine=0.99, max_abs=4.0, clip=0.0)
    assert merged[1] == other


def test_limits_come_back(tmp_path: Path) -> None:
    """A file of limits reads as it was written, and a history keeps errors beside times."""
    path = tmp_path / "limits.json"
    limits = (ErrorLimits(SUBJECT, Bound(p99=0.1, nonfinite=3)),)
    write_thresholds(path, limits)
    assert read_thresholds(path) == limits
    # Processes that tighten it together lose nothing of each other.
    others = [ErrorLimits(replace(SUBJECT, kernel=str(n)), Bound(p99=0.1)) for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda one: write_thresholds(path, [one]), others))
    assert len(read_thresholds(path)) == 9
    run = Kernel(8, 32).run(0)
    record(tmp_path / "history.jsonl", run.entry)
    (entry,) = read_history(tmp_path / "history.jsonl")
    assert [level.metric for level in entry.levels][:2] == ["mean_rel", "p90"]
    assert entry.levels[0].identity == run.entry.levels[0].identity


ROW = {"subject": {"kernel": "k", "shape": {}, "dtype": "fp16"}, "bound": {"p99": 0.1}}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("", "the file is empty"),
        ("{", "not JSON"),
        ({"format": "asmtune-bench", "version": 1}, 'format "asmtune-accuracy-thresholds"'),
        ({"version": 2, "limits": []}, "written by a newer asmtune"),
        ({"limits": None}, "limits"),
        ({"limits": [{**ROW, "bound": {"p98": 0.1}}]}, "unknown field 'p98'"),
        ({"limits": [{**ROW, "p99": 0.1}]}, "unknown field 'p99'"),
        ({"limits": [{**ROW, "bound": {"p99": -1.0}}]}, "p99=-1.0 is no limit"),
        ({"limits": [{**ROW, "bound": {"p99": "1"}}]}, "p99"),
        ({"limits": [{**ROW, "bound": None}]}, "bound"),
        ({"limits": [{"bound": {}}]}, "subject"),
        ({"limits": [ROW, ROW]}, "2 times"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, document: object, message: str) -> None:
    """A file that is no file of limits is told in one line, by its field."""
    path = tmp_path / "limits.json"
    if isinstance(document, dict):
        document = json.dumps({"format": "asmtune-accuracy-thresholds", "version": 1} | document)
    path.write_text(str(document))
    with pytest.raises(InputError, match=message) as caught:
        read_thresholds(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_findings_are_told(tmp_path: Path) -> None:
    """NaN is always worse, advice fits what broke, and table, JSON and trend name the metric."""
    kernel = Kernel(64, 32, "outlier-channels")
    run = kernel.run(0)
    row = run.rows[0]
    stats = replace(row.stats, nonfinite=2, clip=0.25)
    assert row.scales is not None
    uneven = replace(row.scales, most=100 * row.scales.mean)
    run = replace(run, rows=(replace(row, stats=stats, scales=uneven),))
    limits = (ErrorLimits(run.subject(row), Bound(clip=0.1, p99=1.0)),)
    check = Guard(limits).judge(run)
    remarks = {f.metric: f.remark for f in check.findings if f.verdict == "worse"}
    assert set(remarks) == {"nonfinite", "clip"}
    assert "smaller groups" in remarks["clip"]
    assert "100 times the mean: scales per channel" in remarks["clip"]
    text = check_markdown(check)
    assert "### Larger error: 2 worse, 1 unchanged, 3 new" in text
    assert "mean before" in text
    assert json.loads(check_json(check))["outcome"] == "worse"
    pytest.importorskip("matplotlib", reason="no matplotlib: pip install '.[figures]'")
    worse = [f.identity for f in check.findings if f.verdict == "worse"]
    assert b"<svg" in trend_figure([run.entry, run.entry], worse, ".svg")


def test_without_limits_nothing_is_judged() -> None:
    """A run without limits and history is neither fine nor worse."""
    assert Guard(()).judge(Kernel(8, 32).run(0)).outcome == "incomparable"
