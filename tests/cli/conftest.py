"""Commands in a folder of kernel files."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_lines import Commands


@pytest.fixture
def commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Commands:
    """Run commands; the session's artifacts are shared."""
    return Commands(tmp_path, capsys)
