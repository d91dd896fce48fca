"""What a command warns of is one line on stderr, as its errors are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_lines import Commands


@pytest.mark.slow
def test_a_warning_is_one_line(commands: Commands) -> None:
    """A cache that cannot be used is told in one line, without the place in the source."""
    (commands.folder / "cache").write_text("in the way")
    command = [sys.executable, "-m", "asmtune", "prune-report", str(commands.folder / "doubled.py")]
    environment = {
        **os.environ,
        "ASMTUNE_CACHE_DIR": str(commands.folder / "cache"),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    (line,) = ran.stderr.splitlines()
    assert line.startswith("asmtune: artifact folder ")
    assert "ASMTUNE_CACHE_DIR" in line
