"""The replay of stored training rows: every kernel unseen, and figures that can be recomputed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from asmtune.core.hardware.shipped import load_target
from asmtune.predict.score.learned import ranked_at
from asmtune.predict.score.vectors import BASE, Scale, schema
from asmtune.workshop.replay.fitting import fit
from asmtune.workshop.replay.training_rows import Examples, TaskRows
from benchmarks import replay_rows
from benchmarks.harness import RESULTS


def task(kernel: str, seed: int) -> TaskRows:
    """A task whose registers decide, which the predicted time does not tell."""
    draws = np.random.default_rng(seed)
    base = draws.normal(size=(30, len(BASE))).astype(np.float16).astype(np.float32)
    registers = base[:, BASE.index("registers")]
    slow = registers - registers.min()
    slow = (0.5 * slow).astype(np.float16).astype(np.float32)
    return TaskRows(kernel, {"n": seed}, "float16", base, Scale.of(base), slow)


@pytest.mark.slow(seconds=4)
def test_each_kernel_is_unseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first pick of a kernel is that of a model fitted on the other kernels of all files."""
    files = {"one": ("a", "b"), "two": ("c", "d")}
    parts = {
        name: tuple(
            task(kernel, 10 * at + shape) for at, kernel in enumerate(own) for shape in (1, 2)
        )
        for name, own in files.items()
    }
    for name, tasks in parts.items():
        path = tmp_path / f"{name}.npz"
        Examples(tasks, load_target("H200").name, schema(), {}).save(path)
    paths = [str(tmp_path / f"{name}.npz") for name in files]
    monkeypatch.setattr(sys, "argv", ["x", *paths, "--output", str(tmp_path / "out.json")])
    replay_rows.main()
    found = json.loads((tmp_path / "out.json").read_text())["files"]
    assert found["two"]["about"] == {"tasks": 4, "rows": 120, "tasks_thinned": 0}
    model = fit([t for own in parts.values() for t in own if t.kernel != "c"], 1)
    kept = [
        float(np.exp(-t.slowdown[np.argmax(ranked_at(model, t.base, t.scale))]))
        for t in parts["two"]
        if t.kernel == "c"
    ]
    by_hand = float(np.exp(np.log(kept).mean()))
    assert found["two"]["scorers"]["learned"]["kernels"]["c"]["top1"] == round(by_hand, 4)
    learned, roofline = (found["one"]["scorers"][n]["all"]["top1"] for n in ("learned", "roofline"))
    assert learned > roofline


def test_the_assembly_takes_nothing_from_the_first_pick() -> None:
    """On no recorded set does the first pick keep less after compiling than before it."""
    files = json.loads((RESULTS / "replay_rows.json").read_text())["files"]
    picks = {
        (file, scorer): found["all"]["top1"]
        for file, data in files.items()
        for scorer, found in data["scorers"].items()
    }
    worse = [
        (file, scorer)
        for (file, scorer), share in picks.items()
        if share < picks.get((file, f"{scorer}, before compiling"), 0.0)
    ]
    assert {scorer for _, scorer in worse} <= {"roofline"}, worse
    assert len(files) == 5
