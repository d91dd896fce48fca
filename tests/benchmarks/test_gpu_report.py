"""The report of the checks on a GPU: what it keeps of each part, and that limits end parts."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.gpu import report
from tests.gpu.hopper_process import CASES
from tests.gpu.report import Part, parts, run, said

TESTS = Part("some", ("-m", "pytest", "tests/gpu/test_some_gpu.py"), 60)


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
