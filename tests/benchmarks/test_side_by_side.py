"""The benchmark of whole spaces: its order, and parts that were scaled."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks import side_by_side
from benchmarks.harness import RESULTS
from benchmarks.side_by_side import TASKS, summary


def row(number: int) -> dict[str, Any]:
    """Make the result of a task: asmtune 2 s, `triton.autotune` 80 s, all compiled in 12 s."""
    kernel, shape = TASKS[number]
    whole = {"seconds": 80.0, "scaled": False}
    return {
        "kernel": kernel,
        "shape": shape,
        "configs": 8,
        "asmtune": {"seconds": 2.0},
        "triton.autotune": whole,
        "exhaustive": {"coarse": {"seconds": 12.0}},
        "retimed_us": {"asmtune": 10.0, "triton.autotune": 11.0, "exhaustive": 9.0},
    }


def test_two_calls_end_all_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call ends where its time is over; the next runs only the others, and keeps the first's."""
    ran: list[int] = []
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def child(module: str, *words: str, **_: str) -> dict[str, Any]:
        assert module == "benchmarks.side_by_side"
        now[0] += 20.0
        ran.append(int(words[words.index("--task") + 1]))
        return row(ran[-1])

    monkeypatch.setattr(side_by_side, "child", child)
    output = tmp_path / "results.json"
    options = ["kernels", "--parts", "8", "--resume", "--output", str(output)]
    side_by_side.main([*options, "--seconds", "60"])
    assert ran == [0, 1, 2]
    side_by_side.main(options)
    assert ran == list(range(8))
    results = json.loads(output.read_text())
    assert results["first_part"] == 0.125
    assert [(task["kernel"], task["shape"]) for task in results["tasks"]] == list(TASKS)
    found = results["summary"]
    assert (found["tasks"], found["of"]) == (8, 8)
    assert found["autotune"] == {"geomean": 40.0, "worst": 40.0}
    assert (found["exhaustive_5_20"]["geomean"], found["speed"]["geomean"]) == (6.0, 0.9)
    assert found["seconds"] == {"asmtune": 16.0, "autotune": 640.0, "exhaustive_5_20": 96.0}


def test_summary_of_recorded_tasks() -> None:
    """The recorded file's summary is that of its tasks."""
    data = json.loads((RESULTS / "side_by_side.json").read_text())
    assert summary(data["tasks"]) == data["summary"]
