"""Limits of errors: files, what is written, planted faults, no alarm without one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from asmtune.base.errors import InputError
from asmtune.measure.accuracy import Bound, measure_accuracy
from asmtune.workshop.regression.accuracy_guard import (
    ErrorLimits,
    judge,
    limits_of,
    read_limits,
    write_limits,
)
from asmtune.workshop.regression.accuracy_run import AccuracyRequest, AccuracyRun
from asmtune.workshop.regression.accuracy_subject import load_subject
from asmtune.workshop.regression.check_page import check_json, check_markdown
from asmtune.workshop.regression.run import BenchSubject
from benchmarks.accuracy import CHECK, PAGE, RESULTS, guard_section

SCALES = Path(__file__).parents[3] / "examples" / "fp8_scales.py"
RUNS = 200


class Kernel:
    """FP8 round trips with a scale a channel, one of whose scales can be made wrong."""

    def __init__(self, rows: int, channels: int, outliers: int = 1) -> None:
        shape = {"rows": rows, "cols": channels, "outliers": outliers}
        subject = load_subject(f"{SCALES}:per_channel", shape, None)
        self._subject = subject
        self._first = AccuracyRequest.of(subject, {}, "fp64").run("cpu", 0)

    def run(self, seed: int, *, doubled: bool = False) -> AccuracyRun:
        """Measure on inputs of a seed, as a request does: the first run stands for the rest."""
        torch.manual_seed(seed)
        x = self._subject.module.inputs(self._subject.shape, "fp32", "cpu")
        y = self._subject.function(**x)["y"]
        if doubled:
            y[:, 3] *= 2
        row = replace(self._first.rows[0], stats=measure_accuracy(y, x["x"].double()))
        return replace(self._first, rows=(row,), seed=seed)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors on two threads take ten times the CPU."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_the_kernel_of_these_tests_runs_as_a_request_does() -> None:
    """It has the statistics of an accuracy run of the same seed."""
    subject = load_subject(f"{SCALES}:per_channel", {"rows": 8, "cols": 32, "outliers": 9}, None)
    run = AccuracyRequest.of(subject, {}, "fp64").run("cpu", 7)
    assert Kernel(8, 32, 9).run(7).rows[0].stats == run.rows[0].stats


@pytest.mark.slow
@pytest.mark.parametrize("outliers", [1, 20])
def test_no_alarm_without_a_fault_and_one_with(outliers: int) -> None:
    """Of 200 runs on other inputs none breaks the first one's limits; a doubled scale does."""
    kernel = Kernel(64, 64, outliers)
    limits = limits_of(kernel.run(0))
    outcomes = {judge(kernel.run(seed), limits).outcome for seed in range(1, RUNS)}
    assert outcomes == {"fine"}
    check = judge(kernel.run(RUNS, doubled=True), limits)
    worse = {f.metric: f.remark for f in check.findings if f.verdict == "worse"}
    assert check.outcome == "worse"
    assert "scales of a few channels" in worse["p99"]


def test_the_page_has_the_alarms_of_the_committed_runs() -> None:
    """Of 200 unchanged runs none was an alarm, and the page says it."""
    document = json.loads(RESULTS.read_text())
    assert [row["outliers"] for row in document["guard"]] == [1, 20]
    for row in document["guard"]:
        assert (row["runs"], row["alarms"], row["found"]) == (RUNS, 0, True)
    assert CHECK[0] + guard_section(document) + CHECK[1] in PAGE.read_text()


def test_what_limits_allow() -> None:
    """Half again each error, ten clipped elements more, and a rounding where there was no error."""
    run = Kernel(8, 32).run(0)
    row = replace(run.rows[0], dtype="bf16")
    stats = replace(row.stats, elements=1000, mean_rel=0.1, p90=0.0, p99=0.2, clip=0.0)
    (limits,) = limits_of(replace(run, rows=(replace(row, stats=stats),)))
    bound = limits.bound
    assert bound.mean_rel == pytest.approx(0.15)
    assert bound.p99 == pytest.approx(0.3)
    assert bound.p90 == 2**-8, "half of bfloat16's eps"
    assert bound.clip == pytest.approx(0.01)
    assert bound.p999 is None, "one element is beyond it"
    assert bound.max_abs is None
    empty = replace(row, stats=measure_accuracy(torch.ones(0), torch.ones(0)))
    assert limits_of(replace(run, rows=(empty,))) == ()


SUBJECT = BenchSubject("one", {"n": 1}, "fp16", "one, against fp64")


def test_limits_come_back(tmp_path: Path) -> None:
    """A file of limits reads as it was written; a new limit replaces its row's, others stay."""
    path = tmp_path / "limits.json"
    limits = (ErrorLimits(SUBJECT, Bound(p99=0.1, nonfinite=3)),)
    write_limits(path, limits)
    assert read_limits(path) == limits
    # Processes that write together lose nothing of each other.
    others = [ErrorLimits(replace(SUBJECT, kernel=str(n)), Bound(p99=0.1)) for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda one: write_limits(path, [one]), others))
    write_limits(path, [ErrorLimits(SUBJECT, Bound(p90=0.2))])
    found = {limit.subject.kernel: limit.bound for limit in read_limits(path)}
    assert len(found) == 9
    assert found["one"] == Bound(p90=0.2)
    assert found["3"] == Bound(p99=0.1)


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
        read_limits(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_findings_are_told() -> None:
    """NaN is always worse, advice fits what broke, and Markdown and JSON name the metric."""
    run = Kernel(64, 32).run(0)
    row = run.rows[0]
    stats = replace(row.stats, nonfinite=2, clip=0.25)
    run = replace(run, rows=(replace(row, stats=stats),))
    check = judge(run, (ErrorLimits(run.subject(row), Bound(clip=0.1, p99=1.0)),))
    remarks = {f.metric: f.remark for f in check.findings if f.verdict == "worse"}
    assert set(remarks) == {"nonfinite", "clip"}
    assert "smaller groups" in remarks["clip"]
    text = check_markdown(check)
    assert "### Larger error: 2 worse, 1 unchanged" in text
    assert "| clip | 0.25 | 0.1 | 250.0% |" in text
    assert json.loads(check_json(check))["outcome"] == "worse"


def test_without_limits_nothing_is_judged() -> None:
    """A run without limits is neither fine nor worse."""
    assert judge(Kernel(8, 32).run(0), ()).outcome == "incomparable"
