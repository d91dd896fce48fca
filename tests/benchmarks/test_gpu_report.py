"""The report of the checks on a GPU: what it keeps of each part, and that limits end parts."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from asmtune.core.config import Config
from tests.gpu import report
from tests.gpu.hopper_process import CASES, spread
from tests.gpu.report import Outcome, Part, counted, head, parts, ran, run, said

TESTS = Part("some", ("-m", "pytest", "tests/gpu/test_some_gpu.py"), 60)
RACE = Part("race", ("-m", "tests.gpu.racecheck", "gemm", "0", "3"), 60)


def test_parts_exist() -> None:
    """Each file of tests is there, and so is each case of racecheck."""
    for part in parts(6, 2):
        if part.name == "race":
            kernel, number = part.command[2:4]
            assert int(number) < len(CASES[kernel][1])
        else:
            assert (report.ROOT / part.command[-1]).is_file()
            assert ("-n" in part.command) == (part.name not in report.ALONE)
    assert "-n" not in parts(0)[0].command
    files = {path.name[5:-7] for path in (report.ROOT / "tests" / "gpu").glob("test_*_gpu.py")}
    assert files == set(report.TESTS)


def test_each_gpu_takes_the_next_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU has two parts at a time, and all parts run."""
    using: set[int] = set()

    def run_briefly(part: Part, limit_s: float, gpu: int) -> Outcome:
        assert limit_s > 0
        assert gpu not in using
        using.add(gpu)
        time.sleep(0.01)
        using.remove(gpu)
        return Outcome(part.name, 0, 0.01)

    monkeypatch.setattr(report, "run", run_briefly)
    chosen = [Part(str(place), (), 60) for place in range(12)]
    done = {part.name: outcome.output for part, outcome in ran(chosen, 1.0, 3)}
    assert done == {part.name: part.name for part in chosen}


@pytest.mark.slow(seconds=15)
def test_shares_are_all_tests() -> None:
    """Each test of a file is in one of its shares."""
    args = ("--collect-only", "-q", "-p", "no:cacheprovider", "tests/gpu/test_launch_gpu.py")
    command = [sys.executable, "-m", "pytest", "-m", "gpu", *args]

    def collected(*more: str) -> list[str]:
        ran = subprocess.run([*command, *more], cwd=report.ROOT, capture_output=True, text=True)
        return [line for line in ran.stdout.splitlines() if "::" in line]

    first, second = (collected("--share", f"{place}/2") for place in range(2))
    assert first != []
    assert sorted([*first, *second]) == sorted(collected())


def test_what_is_kept_of_tests() -> None:
    """Failed tests and the result; where the limit ended it, how many had passed and failed."""
    lines = [
        "[gw0] [  5%] PASSED tests/gpu/test_some_gpu.py::test_one[PASSED]",
        "[gw1] [ 10%] FAILED tests/gpu/test_some_gpu.py::test_two",
        "tests/gpu/test_some_gpu.py::test_three PASSED   [100%]",
        "AssertionError: FAILED",
    ]
    assert counted(lines) == "2 passed, 1 failed"
    assert counted([]) == "0 passed, none failed"
    end = [
        "FAILED tests/gpu/test_some_gpu.py::test_two - Error",
        "===== 1 failed, 2 passed in 3.00s =====",
    ]
    assert said(TESTS, Outcome("\n".join(lines + end), 1, 3.2)) == [
        end[0],
        "1 failed, 2 passed in 3.00s",
    ]
    failed, cut = said(TESTS, Outcome("\n".join(lines), None, 60.0))
    assert failed == lines[1]
    assert cut == "2 passed, 1 failed, then ended by its limit after 60 s"
    assert said(TESTS, Outcome("no module named pytest", 1, 0.1)) == [
        "no module named pytest",
        "no result, exit status 1, after 0 s",
    ]


def test_what_is_kept_of_racecheck() -> None:
    """All that it printed, and the seconds."""
    result = "0 hazards besides Triton's own; the case ended with 0"
    assert said(RACE, Outcome(f"{result}\n", 0, 31.0)) == [result, "31 s"]
    assert said(RACE, Outcome("", None, 60.0)) == ["ended by its limit after 60 s"]


@pytest.mark.slow
def test_a_part_is_ended_with_all_its_processes(tmp_path: Path) -> None:
    """A part of tests sums up what it has, and what it started is ended with it."""
    file = tmp_path / "test_long.py"
    file.write_text(
        "import subprocess, sys, time\n"
        "def test_short(): pass\n"
        "def test_long():\n"
        f"    code = \"import time; time.sleep(8); open(r'{tmp_path / 'late'}', 'w')\"\n"
        "    subprocess.Popen([sys.executable, '-c', code])\n"
        "    time.sleep(60)\n"
    )
    part = Part("long", ("-m", "pytest", "-v", "-p", "no:cacheprovider", str(file)), 5)
    outcome = run(part, 5)
    assert outcome.status is None
    assert said(part, outcome)[-1].startswith("1 passed, none failed, then ended by its limit")
    time.sleep(5)
    assert not (tmp_path / "late").exists()


def test_nothing_begins_after_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    """What has no time left is named above the parts."""
    assert list(ran([TESTS, RACE], 0.0, 2)) == []
    assert "2 parts are not begun" in capsys.readouterr().out
    facts = {"device": "NVIDIA H100", "python": "3.12", "torch": "2.11", "triton": "3.6"}
    facts |= {"cpus": 16, "date": "2026-11-27T10:00:00", "commit": "abc", "command": "python -m x"}
    text = head(facts, [RACE])
    assert "# NVIDIA H100 (driver -, Python 3.12, torch 2.11, triton 3.6, 16 CPUs)" in text
    assert "#   python -m tests.gpu.racecheck gemm 0 3\n" in text
    assert "no time left" not in head(facts, [])


def test_configs_at_equal_distances() -> None:
    """A limit picks configs over the whole list; without one all are taken."""
    configs = [Config({"BLOCK": n}) for n in range(10)]
    assert spread(configs, None) == configs
    assert spread(configs, 20) == configs
    assert [config.kwargs["BLOCK"] for config in spread(configs, 3)] == [0, 3, 6]
