"""Training rows from recorded timings, `asmtune model rows`, and models of such rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from asmtune.base.errors import InputError
from asmtune.base.settings import Settings
from asmtune.cli.app import run
from asmtune.core.hardware.model import Target
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.scorers import make_scorer
from asmtune.workshop.replay.flow import moment_rows
from asmtune.workshop.replay.oracle import Oracle, load_oracle
from asmtune.workshop.replay.results import CUTS
from asmtune.workshop.replay.training_rows import Examples, TaskRows, examples
from benchmarks.unseen import rank_unseen, scorer_errors, unseen_result

DATA = Path(__file__).parents[2] / "replay_data"
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


def compiled_rows(oracle: Oracle, funnel: Funnel) -> list[TaskRows]:
    """The rows of a file's tasks, without those before compiling."""
    return [rows.assembly for rows in moment_rows(oracle, DATA / "kernels", funnel, early=False)]


def test_rows_of_a_file(more_timings: Path, funnel: Funnel) -> None:
    """Tasks with five timed configs give a row each, slower ones with a larger number."""
    oracle = load_oracle(more_timings)
    tasks = compiled_rows(oracle, funnel)
    assert [task.kernel for task in tasks] == ["barriers", "returns"]
    rows = next(task.rows for task in oracle.tasks if task.kernel == "barriers")
    times = np.array([row.ms for row in rows if row.ms is not None])
    assert tasks[0].slowdown == pytest.approx(np.log(times / times.min()), abs=1e-5)
    made = examples(tasks, funnel.target, oracle.device, {"more.json": oracle.versions})
    assert made.target == "H200"
    assert made.provenance["measured"] == {"more.json": {}}


def test_each_kernel_unseen(more_timings: Path, funnel: Funnel) -> None:
    """The table has every task of every kernel that others can teach, and no other."""
    tasks = compiled_rows(load_oracle(more_timings), funnel)
    result = unseen_result(rank_unseen(tasks, {"assembly": tasks}, 1)["assembly"])
    assert result.kernels == ("barriers", "returns")
    assert all(0 < r.kept[cut] <= 1 for r in result.tasks for cut in CUTS)
    alone = rank_unseen(tasks[:1], {"assembly": tasks[:1]}, 1)
    assert unseen_result(alone["assembly"]).tasks == ()


def test_errors(more_timings: Path, funnel: Funnel) -> None:
    """The scorers' errors at each moment are those of rankings by models of the other kernels."""
    oracle = load_oracle(more_timings)
    rows = list(moment_rows(oracle, DATA / "kernels", funnel, early=True))
    assembly = [task.assembly for task in rows]
    sketch = [task.sketch for task in rows if task.sketch is not None]
    assert [task.kernel for task in sketch] == ["barriers", "returns"]
    for one, other in zip(assembly, sketch, strict=True):
        assert one.slowdown.tolist() == other.slowdown.tolist()
        assert one.base.tolist() != other.base.tolist()
    unseen = rank_unseen([*assembly, *sketch], {"assembly": assembly, "sketch": sketch}, 1)
    assert [task for task, *_ in unseen["assembly"]] == assembly
    made = scorer_errors(unseen, [oracle.device], {"more.json": oracle.versions})
    assert made.provenance["measured"] == {"more.json": {}}
    assert set(made.tables) == {
        (scorer, moment) for scorer in ("learned", "roofline") for moment in ("assembly", "sketch")
    }
    for moment, tasks in (("assembly", assembly), ("sketch", sketch)):
        by_time = [np.exp(-task.slowdown[np.argmin(task.base[:, 0])]) for task in tasks]
        assert made.tables["roofline", moment].cut(1).share == pytest.approx(np.mean(by_time))
        first = [np.exp(-task.slowdown[np.argmax(scores)]) for task, scores in unseen[moment]]
        assert made.tables["learned", moment].cut(1).share == pytest.approx(np.mean(first))
    with pytest.raises(InputError, match="at least two kernels, not of one"):
        scorer_errors(rank_unseen(assembly[:1], {"assembly": assembly[:1]}, 1), [oracle.device], {})


def test_command(more_timings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command writes files that load: rows of the assembly, and of the same tasks before it."""
    output, sketches = tmp_path / "rows.npz", tmp_path / "sketches.npz"
    command = ["model", "rows", str(more_timings), "--kernels", str(DATA / "kernels")]
    assert run([*command, "--output", str(output), "--sketches", str(sketches)]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "25 rows of 2 tasks" in printed.err
    made, early = Examples.load(output), Examples.load(sketches)
    assert made.kernels == early.kernels == ("barriers", "returns")
    assert made.tasks[0].base.tolist() != early.tasks[0].base.tolist()
