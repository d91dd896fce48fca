"""A new process that finds its key in the store: what it may load before its first launch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("cold_process.py")
HEAVY = ("sklearn", "scipy", "joblib", "rich", "typer", "sqlalchemy")
TUNING = ("predict", "report", "workshop", "cli")


def run(folder: Path, *arguments: str) -> str:
    """Run the script with an empty environment but for its cache folder; return its output."""
    environment = {**os.environ, "ASMTUNE_CACHE_DIR": str(folder)}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder whose store knows the kernel's key."""
    made = tmp_path_factory.mktemp("cold")
    run(made, "keep", "128")
    return made


def launched(folder: Path, **options: Any) -> dict[str, Any]:
    """List what a new process launched and loaded."""
    found: dict[str, Any] = json.loads(run(folder, "launch", json.dumps(options)))
    return found


def roots(found: dict[str, Any]) -> set[str]:
    """Names of packages that were loaded."""
    return {name.split(".")[0] for name in found["loaded"]}


@pytest.mark.slow(seconds=6)
@pytest.mark.parametrize("options", [{}, {"on_miss": "background", "restore_value": ["x_ptr"]}])
def test_loads_nothing_that_tunes(folder: Path, options: dict[str, Any]) -> None:
    """A stored config is launched without scikit-learn, SQLAlchemy or any room that tunes."""
    found = launched(folder, **options)
    assert found["block"] == 128
    assert roots(found).isdisjoint(HEAVY)
    rooms = {name.split(".")[1] for name in found["loaded"] if name.startswith("asmtune.")}
    assert rooms.isdisjoint(TUNING if not options else ("report", "workshop", "cli"))
