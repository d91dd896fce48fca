"""Limits of errors: files, tolerance by a history, planted faults, no alarm without one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import binom, norm

from asmtune.base.errors import InputError
from asmtune.measure.accuracy import Bound
from asmtune.report.regression import check_json, check_markdown, trend_figure
from asmtune.studies.accuracy.guard import (
    ErrorLimits,
    Guard,
    GuardTerms,
    adaptive,
    limit_of,
    read_thresholds,
    stricter,
    tolerance_factor,
    write_thresholds,
)
from asmtune.studies.accuracy.run import AccuracyRequest, AccuracyRun
from asmtune.studies.accuracy.subject import load_subject
from asmtune.studies.regression.history import HistoryEntry, extended, read_history, record
from asmtune.studies.regression.run import BenchSubject

SCALES = Path(__file__).parents[2] / "examples" / "fp8_scales.py"
LEVEL = 0.01
RUNS = 200


class Kernel:
    """FP8 round trips with a scale a channel, some of whose scales can be made wrong."""

    def __init__(self, rows: int, channels: int, inputs: str = "random") -> None:
        shape = {"rows": rows, "cols": channels}
        subject = load_subject(f"{SCALES}:per_channel", shape, None)
        self._request = AccuracyRequest.of(subject, {}, "fp64", inputs, None)
        self._doubled = replace(
            self._request.variants[0], function=lambda x: self._one_doubled(subject.function(x))
        )

    @staticmethod
    def _one_doubled(result: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Read one channel with twice its scale."""
        result["y"][:, 3] *= 2
        result["scale"][:, 3] *= 2
        return result

    def run(self, seed: int, *, doubled: bool = False) -> AccuracyRun:
        """Measure on inputs of a seed."""
        request = self._request
        if doubled:
            request = replace(request, variants=(self._doubled,))
        return request.run("cpu", seed, f"run {seed}")


def guarded(
    runs: list[AccuracyRun],
) -> tuple[list[str], tuple[ErrorLimits, ...], tuple[HistoryEntry, ...]]:
    """Judge runs one after another as the command does; outcomes, last limits and history."""
    limits: tuple[ErrorLimits, ...] = ()
    history: tuple[HistoryEntry, ...] = ()
    outcomes = []
    for run in runs:
        guard = Guard(GuardTerms(LEVEL), limits, history, adapts=True)
        outcomes.append(guard.judge(run).outcome)
        if outcomes[-1] != "worse":
            limits = guard.tightened(run)
        history = extended(history, run.entry)
    return outcomes, limits, history


@pytest.mark.slow(seconds=60)
@pytest.mark.parametrize("inputs", ["random", "heavy-tailed"])
def test_no_alarm_without_a_fault_and_one_with(inputs: str) -> None:
    """Of 200 unchanged runs no more alarm than the level says; a doubled scale does, by name."""
    kernel = Kernel(64, 64, inputs)
    runs = [kernel.run(seed) for seed in range(RUNS)]
    outcomes, limits, history = guarded(runs)
    assert outcomes.count("incomparable") == 5
    assert outcomes.count("worse") <= LEVEL * RUNS
    guard = Guard(GuardTerms(LEVEL), limits, history, adapts=True)
    check = guard.judge(kernel.run(RUNS, doubled=True))
    worse = {
        finding.metric: finding.remark for finding in check.findings if finding.verdict == "worse"
    }
    assert check.outcome == "worse"
    assert "p99" in worse
    assert "scales of a few channels" in worse["p99"]


def test_a_doubled_scale_is_found_after_five_runs() -> None:
    """Limits of the shortest history find it too, and are not loosened by it."""
    kernel = Kernel(64, 32)
    outcomes, limits, history = guarded([kernel.run(seed) for seed in range(6)])
    assert outcomes == ["incomparable"] * 5 + ["fine"]
    guard = Guard(GuardTerms(LEVEL), limits, history, adapts=True)
    assert guard.judge(kernel.run(9, doubled=True)).outcome == "worse"
    assert guard.judge(kernel.run(9)).outcome == "fine"


def test_the_factor_covers_what_it_says() -> None:
    """Nearly every history's limit leaves the share above it at most; mean + 3 sd does not."""
    draws = np.random.default_rng(0).normal(size=(20_000, 5))
    mean, sd = draws.mean(1), draws.std(1, ddof=1)
    share = 0.00135
    above = norm.sf(mean + tolerance_factor(5, share) * sd)
    assert (above > share).mean() <= binom.ppf(0.999, 20_000, 0.001) / 20_000
    assert norm.sf(mean + 3 * sd).mean() > 10 * share
    assert tolerance_factor(100, share) < tolerance_factor(10, share) < tolerance_factor(5, share)
    assert tolerance_factor(1000, share) == pytest.approx(3.0, rel=0.12)


def test_limits_of_what_hardly_scatters() -> None:
    """Equal values allow their resolution, no clipping a few elements, and few runs nothing."""
    assert limit_of([0.1] * 4, 1000, 0.001, "p99") is None
    limit = limit_of([0.1] * 20, 1000, 0.001, "p99")
    assert limit is not None
    assert 0.1 < limit < 0.102
    clip = limit_of([0.0] * 100, 1000, 0.001, "clip")
    assert clip is not None
    assert 0 < clip < 2e-3


def test_quantiles_need_enough_elements() -> None:
    """A quantile beyond which fewer than ten elements lie gets no limit."""
    kernel = Kernel(16, 64)
    runs = [kernel.run(seed) for seed in range(6)]
    (limits,) = adaptive(runs[0], [run.entry for run in runs[1:]], LEVEL)
    assert limits.bound.p99 is not None
    assert limits.bound.p999 is None


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
        ({"limits": [{**ROW, "bound": {"p98": 0.1}}]}, "unknown limit 'p98'"),
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
    stats = replace(row.stats, nonfinite=2, clip=0.25, kl=None)
    assert row.scales is not None
    uneven = replace(row.scales, most=100 * row.scales.mean)
    run = replace(run, rows=(replace(row, stats=stats, scales=uneven),))
    limits = (ErrorLimits(run.subject(row), Bound(clip=0.1, p99=1.0)),)
    check = Guard(GuardTerms(), limits).judge(run)
    remarks = {f.metric: f.remark for f in check.findings if f.verdict == "worse"}
    assert set(remarks) == {"nonfinite", "clip"}
    assert "smaller groups" in remarks["clip"]
    assert "100 times the mean: scales per channel" in remarks["clip"]
    text = check_markdown(check)
    assert "### Larger error: 2 worse, 1 unchanged, 4 new" in text
    assert "mean before" in text
    assert json.loads(check_json(check))["outcome"] == "worse"
    pytest.importorskip("matplotlib", reason="no matplotlib: pip install '.[figures]'")
    worse = [f.identity for f in check.findings if f.verdict == "worse"]
    assert b"<svg" in trend_figure([run.entry, run.entry], worse, ".svg")
    with pytest.raises(InputError, match="kl has a limit and was not measured: give --kl"):
        Guard(GuardTerms(), (ErrorLimits(run.subject(row), Bound(kl=1.0)),)).judge(run)


def test_without_limits_nothing_is_judged() -> None:
    """A run without limits and history is neither fine nor worse."""
    assert Guard(GuardTerms(), ()).judge(Kernel(8, 32).run(0)).outcome == "incomparable"
