"""The report of the checks on a GPU: its parts exist, and limits end them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.gpu import report
from tests.gpu.report import Part, parts, run, said


def test_parts_exist() -> None:
    """Each file of tests has a part."""
    files = {str(path.relative_to(report.ROOT)) for path in report.ROOT.glob("tests/gpu/test_*.py")}
    assert files == {part.command[-1] for part in parts(6)}


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
    output, status = run(part, 5)
    assert status is None
    assert said(part, output, status) == ["ended by its limit of 5 s", "1 passed"]
    time.sleep(5)
    assert not (tmp_path / "late").exists()
