"""Recorded timings, and changes of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TIMINGS = Path(__file__).parents[2] / "replay_data" / "timings.json"


@pytest.fixture
def changed(tmp_path: Path) -> Callable[[Callable[[Any], None]], Path]:
    """Write the timings with a change."""

    def write(change: Callable[[Any], None]) -> Path:
        document = json.loads(TIMINGS.read_text())
        change(document)
        path = tmp_path / "changed.json"
        path.write_text(json.dumps(document))
        return path

    return write
