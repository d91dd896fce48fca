"""The benchmark of whole spaces: the recorded file agrees with itself."""

from __future__ import annotations

import json

from benchmarks.harness import RESULTS
from benchmarks.side_by_side import summary


def test_summary_of_recorded_tasks() -> None:
    """The recorded file's summary is that of its tasks."""
    data = json.loads((RESULTS / "side_by_side.json").read_text())
    assert summary(data["tasks"]) == data["summary"]
