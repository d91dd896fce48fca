"""Training rows from recorded timings, and `asmtune train`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from asmtune.cli.app import run
from asmtune.funnel import Funnel
from asmtune.oracle import load_oracle
from asmtune.replay import CUTS
from asmtune.score import make_scorer
from asmtune.score.examples import Examples
from asmtune.settings import Settings
from asmtune.target import Target
from asmtune.train import examples, leave_one_kernel_out, task_rows

DATA = Path(__file__).parent / "replay_data"
TIMINGS = DATA / "timings.json"


@pytest.fixture
def more_timings(tmp_path: Path) -> Path:
    """The timings with five configs of `barriers`, so that it has a task of its own."""
    document = json.loads(TIMINGS.read_text())
    task = next(task for task in document["tasks"] if task["kernel"] == "barriers")
    timed = [row for row in task["rows"] if "ms" in row]
    task["rows"].append({**timed[0], "config": {**timed[0]["config"], "num_warps": 8}})
    path = tmp_path / "more.json"
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def funnel(target: Target, settings: Settings) -> Funnel:
    """The funnel that compiles and reads."""
    return Funnel(target, make_scorer("chance"), settings)


def test_rows_of_a_file(more_timings: Path, funnel: Funnel) -> None:
    """Tasks with five timed configs give a row each, slower ones with a larger number."""
    oracle = load_oracle(more_timings)
    tasks = list(task_rows(oracle, DATA / "kernels", funnel))
    assert [task.kernel for task in tasks] == ["barriers", "returns"]
    rows = next(task.rows for task in oracle.tasks if task.kernel == "barriers")
    times = np.array([row.ms for row in rows if row.ms is not None])
    assert tasks[0].slowdown == pytest.approx(np.log(times / times.min()), abs=1e-5)
    made = examples(tasks, funnel.target, oracle.device, {"more.json": oracle.versions})
    assert made.target == "H200"
    assert made.provenance["measured"] == {"more.json": {}}


def test_each_kernel_unseen(more_timings: Path, funnel: Funnel) -> None:
    """The table has every task of every kernel that others can teach, and no other."""
    tasks = list(task_rows(load_oracle(more_timings), DATA / "kernels", funnel))
    result = leave_one_kernel_out(tasks, 1)
    assert result.kernels == ("barriers", "returns")
    assert all(0 < r.kept[cut] <= 1 for r in result.tasks for cut in CUTS)
    assert leave_one_kernel_out(tasks[:1], 1).tasks == ()


def test_command(more_timings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command writes a file that loads, and prints the table where it is asked for."""
    output = tmp_path / "rows.npz"
    command = ["train", str(more_timings), "--kernels", str(DATA / "kernels")]
    assert run([*command, "--output", str(output)]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "rows of 2 tasks" in printed.err
    assert Examples.load(output).kernels == ("barriers", "returns")
    before = output.read_bytes()
    assert run([*command, "--output", str(output), "--table"]) == 0
    assert output.read_bytes() == before
    table = capsys.readouterr().out
    assert "each kernel unseen" in table
    assert "barriers" in table


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("{}/absent.json", "--kernels", "{}", "--output", "{}/o.npz"), "No such file"),
        ((str(TIMINGS), "--kernels", "{}", "--output", "{}/o.npz"), "kernel 'barriers' of the"),
        ((str(TIMINGS), "--kernels", "{}", "--kernels", "{}", "--output", "{}/o"), "2 --kernels"),
        (
            (str(TIMINGS), "--kernels", str(DATA / "kernels"), "--output", "{}/no/o.npz"),
            "No such file or directory",
        ),
        ((str(TIMINGS), "--output", "{}/o.npz"), "--kernels"),
    ],
)
def test_bad_input(
    arguments: tuple[str, ...], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What does not fit is refused in one line."""
    assert run(["train", *(a.replace("{}", str(tmp_path)) for a in arguments)]) == 2
    printed = capsys.readouterr()
    assert says in printed.err
    assert printed.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
