"""A run's timings and features are stored for the next ranking, and the ranking is told."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from asmtune.base.settings import Settings
from asmtune.core.hardware.shipped import load_target
from asmtune.predict.score.examples import Examples
from asmtune.predict.score.history import History
from asmtune.predict.score.learned import Learned
from asmtune.predict.score.refined import RefinedLearned
from asmtune.predict.score.vectors import schema
from asmtune.store.trace.reader import read_trace
from asmtune.store.trace.run import run_files
from asmtune.tuning.request import key_of
from tests.score.test_learned import rows
from tests.tuning_support import DEVICE, HostMachine, problem, resolved, space, usual_us, workshop

KERNEL = key_of(problem(), DEVICE).kernel


def test_a_run_is_stored(tmp_path: Path) -> None:
    """Every config that was compiled and timed is a row of the history, with its time."""
    result = resolved(workshop(tmp_path, HostMachine(), "exhaustive"))
    history = History(Settings(cache_dir=tmp_path))
    (task,) = history.nearest(KERNEL, "H200")
    assert task.count == len(result.record.measurements)
    times = sorted(usual_us(m.config) for m in result.record.measurements)
    slowdown = sorted(task.rows.slowdown.tolist())
    assert slowdown[-1] == pytest.approx(math.log(times[-1] / times[0]), rel=0.01)
    assert (task.is_of(KERNEL), task.is_of("other.kernel")) == (True, False)
    assert (task.device, task.target) == (DEVICE, load_target("H200").name)


def test_an_interrupted_run_is_stored(tmp_path: Path) -> None:
    """What was timed before Ctrl-C is kept with its features."""
    with pytest.raises(KeyboardInterrupt):
        resolved(workshop(tmp_path, HostMachine(interrupt_after=120), "exhaustive"))
    (task,) = History(Settings(cache_dir=tmp_path)).nearest(KERNEL, "H200")
    assert task.count >= 5


def test_the_run_tells_what_ranked(tmp_path: Path) -> None:
    """The trace of a run that ranks by `learned` has the note on the user's timings."""
    resolved(workshop(tmp_path, HostMachine(), "exhaustive"))
    tuner = workshop(tmp_path, HostMachine())
    shipped = tmp_path / "shipped.npz"
    tasks = tuple(rows(kernel, seed, tuner.funnel.target) for seed, kernel in enumerate("abc"))
    Examples(tasks, "H200", schema(), {"device": DEVICE}).save(shipped)
    learned = Learned(tuner.funnel.settings, (shipped,))
    scorer = RefinedLearned(learned, History(tuner.funnel.settings), tuner.funnel.target)
    tuner.funnel = replace(tuner.funnel, scorer=scorer)
    resolved(tuner, space(flaws=(0, 1)), problem(8192))  # for a short list nothing ranks
    run = read_trace(run_files(tmp_path / "runs")[-1])
    (note,) = [note for note in run.notes if "timings of this store" in note]
    assert note.startswith(f"refined by 20 timings of this store on {DEVICE}; they rank your")
    report = tuner.funnel.prune(problem(), space())
    assert any("timings of this store" in note for note in report.notes)
