"""The benchmark of whole spaces: its order, and parts that were scaled."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from asmtune.core.config import Config
from benchmarks.harness import RESULTS
from benchmarks.side_by_side import __main__ as program
from benchmarks.side_by_side import baselines
from benchmarks.side_by_side.baselines import Effort, autotuned
from benchmarks.side_by_side.summary import summary
from benchmarks.side_by_side.tasks import TASKS

RECORDED: list[dict[str, Any]] = json.loads((RESULTS / "side_by_side.json").read_text())["tasks"]
CONFIGS = [Config({"BLOCK": 16 << number}) for number in range(10)]


def _row(**changes: Any) -> dict[str, Any]:
    """Make the result of a task: asmtune 2 s, `triton.autotune` 80 s, all compiled in 10 s."""
    row: dict[str, Any] = {"kernel": "k", "shape": {"M": 1}, "configs": 8}
    row["asmtune"] = {"seconds": 2.0}
    row["triton.autotune"] = {"seconds": 80.0}
    row["exhaustive"] = {"coarse": {"seconds": 12.0, "timing_s": 2.0}}
    row["retimed_us"] = {"asmtune": 10.0, "triton.autotune": 11.0, "exhaustive": 9.0}
    return {**row, **changes}


def test_two_calls_end_all_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call names what it could not end; the next runs only that, and keeps the others."""
    ran: list[str] = []
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def process(_: Any, number: int, folder: Path, output: Path) -> str:
        assert (folder / "asmtune" / "models").is_dir()
        task = TASKS[number].to_json()
        ran.append(program.task_name(task))
        now[0] += 20.0
        output.write_text(json.dumps(_row(**task)))
        return ""

    def fitted(folder: Path) -> float:
        (folder / "models").mkdir(parents=True)
        return 1.0

    monkeypatch.setattr(program.Worker, "_process", process)
    monkeypatch.setattr(program, "fitted", fitted)
    options = ["kernels", "--gpus", "1", "--parts", "8", "--most-s", "45"]
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    program.main([*options, "--seconds", "60", "--output", str(first)])
    told = json.loads(first.read_text())
    errors = [task["error"] for task in told["tasks"] if "error" in task]
    assert (len(ran), len(errors)) == (3, 5)
    assert set(errors) == {"not begun"}
    assert told["first_part"] == 0.125
    program.main([*options, "--keep", str(first), "--output", str(second)])
    assert len(ran) == len(set(ran)) == 8
    results = json.loads(second.read_text())
    assert results["summary"]["tasks"] == 8
    in_order = [program.task_name(task.to_json()) for task in TASKS]
    assert [program.task_name(task) for task in results["tasks"]] == in_order


@pytest.mark.parametrize(
    ("effort", "run", "share", "seconds", "scaled"),
    [
        (Effort(100.0, 5), 10, 1.0, 10.0, False),
        (Effort(9.0, 5), 2, 0.2, 10.0, True),
        (Effort(1.0, 1), 10, 1.0, 10.0, False),
    ],
)
def test_part_is_told(
    monkeypatch: pytest.MonkeyPatch,
    effort: Effort,
    run: int,
    share: float,
    seconds: float,
    scaled: bool,
) -> None:
    """Seconds of a part are scaled, and say so with its share; what was run in full is not."""
    monkeypatch.setattr(
        baselines, "_autotune", lambda _, configs: (1.0 * len(configs), configs[0], 1.0)
    )
    problem: Any = None
    row = autotuned(problem, CONFIGS, effort)
    assert (row["run"], row["share"], row["seconds"]) == (run, share, seconds)
    assert row["scaled"] is scaled
    assert row["seconds_run"] == run


def test_summary() -> None:
    """A summary has means and worst cases; a task that failed counts in none."""
    whole = summary([_row(), {**_row(), "error": "ran out of time"}])
    assert (whole["tasks"], whole["of"]) == (1, 2)
    assert whole["autotune"] == {"geomean": 40.0, "worst": 40.0}
    assert whole["exhaustive_5_20"]["geomean"] == 6.0
    assert whole["speed"]["geomean"] == 0.9


def test_summary_of_recorded_tasks() -> None:
    """The recorded file's summary is that of its tasks."""
    data = json.loads((RESULTS / "side_by_side.json").read_text())
    assert summary(RECORDED) == data["summary"]
