"""Training rows as files, and the learned scorer's trees fitted on them."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import lightgbm
import numpy as np
import pytest

from asmtune.base.errors import InputError, ParseError
from asmtune.cli.app import run
from asmtune.core.hardware.model import Target
from asmtune.predict.score.learned import SHIPPED as SHIPPED_TREES
from asmtune.predict.score.learned import Learned, load_trees, ranked_at
from asmtune.predict.score.roofline import Roofline
from asmtune.predict.score.scorers import make_scorer
from asmtune.predict.score.trees import Trees
from asmtune.predict.score.vectors import Scale, base_columns, schema
from asmtune.workshop.replay import training_rows
from asmtune.workshop.replay.fitting import fit, model_of, trees_of, unseen_scorer
from asmtune.workshop.replay.training_rows import SHIPPED, Examples, TaskRows
from tests.score.random_features import candidates, features, times


def rows(kernel: str, seed: int, target: Target) -> TaskRows:
    """A task of a kernel."""
    found = features(seed)
    return TaskRows.of((kernel, {"n": seed}, "float16"), found, times(found), target)


@pytest.fixture
def tasks(target: Target) -> tuple[TaskRows, ...]:
    """Two tasks of each of three kernels."""
    return tuple(rows(kernel, s, target) for s, kernel in enumerate(("a", "b", "c") * 2))


@pytest.fixture
def source(tasks: tuple[TaskRows, ...], tmp_path: Path) -> Path:
    """A file of them."""
    path = tmp_path / "rows.npz"
    Examples(tasks, "H200", schema(), {"device": "NVIDIA H200"}).save(path)
    return path


def test_it_learns(tasks: tuple[TaskRows, ...], target: Target) -> None:
    """On a task never seen it ranks by what counted in the training, better than the roofline."""
    task = candidates(99, target)
    took = np.array(times([c.features for c in task if c.features is not None]))
    by_learned = Learned(fitted=fit(tasks, 1)).score(task)
    by_roofline = Roofline().score(task)
    assert np.corrcoef(by_learned, -took)[0, 1] > 0.7
    assert np.corrcoef(by_learned, took)[0, 1] < np.corrcoef(by_roofline, took)[0, 1]


def test_the_fit_is_deterministic(tasks: tuple[TaskRows, ...]) -> None:
    """Equal rows give equal trees, on one processor as on two."""
    one, two = fit(tasks, 1), fit(tasks, 2)
    for name in ("left", "right", "feature", "threshold", "value", "roots"):
        assert (getattr(one, name) == getattr(two, name)).all()


@pytest.mark.parametrize("seed", range(4))
def test_predicts_as_lightgbm(seed: int) -> None:
    """Predictions equal the fitted model's, on coarse values that meet thresholds exactly too."""
    generator = np.random.default_rng(seed)
    x = generator.integers(-4, 5, size=(300, 6)).astype(np.float32) / 3
    y = x[:, 0] * x[:, 1] + generator.normal(size=300)
    options = {"verbosity": -1, "num_threads": 1, "extra_trees": bool(seed % 2)}
    booster = lightgbm.train(options, lightgbm.Dataset(x, y), 5 + 10 * seed)
    asked = np.vstack([x, generator.normal(size=(50, 6)).astype(np.float32)])
    predicted = trees_of(booster.dump_model(), {}).predict(asked)
    assert predicted == pytest.approx(np.asarray(booster.predict(asked)), abs=1e-5)


def test_a_kernel_is_left_out(
    source: Path, tasks: tuple[TaskRows, ...], target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay ranks a kernel of the training rows by trees of the others; its own are refused."""
    monkeypatch.setattr("asmtune.workshop.replay.fitting.SHIPPED", (source,))
    loaded = Examples.load(source)
    scorer, task = Learned(fitted=model_of([loaded], 1)), candidates(7, target)
    without = unseen_scorer(scorer, "b", 1)
    assert (without.name, without.score(task) != scorer.score(task)) == ("learned", True)
    assert unseen_scorer(scorer, "never seen", 1) is scorer
    base = base_columns([c.features for c in task if c.features is not None], target)
    by_hand = ranked_at(
        fit([t for t in loaded.tasks if t.kernel != "b"], 1), base, training_rows.Scale.of(base)
    )
    assert without.score(task) == by_hand.tolist()
    own = replace(scorer, name="learned:mine.npz")
    with pytest.raises(InputError, match="--without b"):
        unseen_scorer(own, "b", 1)


def test_rows_saved_and_loaded(source: Path, tasks: tuple[TaskRows, ...], tmp_path: Path) -> None:
    """A file gives back its tasks to float16's precision, and the same rows the same bytes."""
    loaded = Examples.load(source)
    assert loaded.kernels == ("a", "b", "c")
    for before, after in zip(tasks, loaded.tasks, strict=True):
        assert (after.kernel, after.shape, after.dtype) == (before.kernel, before.shape, "float16")
        assert after.vectors == pytest.approx(before.vectors, abs=0.02)
        assert after.slowdown == pytest.approx(before.slowdown, abs=0.002)
    loaded.save(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == source.read_bytes()


def test_thinned(target: Target) -> None:
    """The fastest third of a large task stays, with its scale; a small one stays whole."""
    found = features(3, 500)
    task = TaskRows.of(("a", {}, "float16"), found, times(found), target)
    thin = task.thinned()
    assert len(thin.slowdown) == training_rows.MOST_ROWS
    fastest = np.sort(task.slowdown)[: training_rows.MOST_ROWS // 3]
    assert set(fastest.tolist()) <= set(thin.slowdown.tolist())
    assert (thin.scale, thin.thinned()) == (task.scale, thin)


def test_rows_that_do_not_fit(source: Path) -> None:
    """Rows that do not fit each other, or hold no numbers, are refused; none is unpickled."""
    loaded = Examples.load(source)
    with np.load(source) as file:
        arrays = dict(file)
    first, *rest = loaded.tasks
    short = replace(first, slowdown=first.slowdown[:-1])
    empty = replace(first, base=first.base[:0], slowdown=first.slowdown[:0])
    infinite = replace(first, base=np.full_like(first.base, np.inf))
    for wrong in (short, empty, infinite):
        replace(loaded, tasks=(wrong, *rest)).save(source)
        with pytest.raises(ParseError, match="do not fit"):
            Examples.load(source)
    for name, array in (
        ("slowdown", np.array([{}], dtype=object)),
        ("about", np.frombuffer(b"[1, 2]", np.uint8)),
    ):
        np.savez(source, **{**arrays, name: array})
        with pytest.raises(ParseError, match="training rows"):
            Examples.load(source)
    least, median = loaded.tasks[0].scale.least[:5], loaded.tasks[0].scale.median[:5]
    few = [replace(t, base=t.base[:, :5], scale=Scale(least, median)) for t in loaded.tasks]
    for other in (replace(loaded, schema="another"), replace(loaded, tasks=tuple(few))):
        other.save(source)
        with pytest.raises(ParseError, match="other features"):
            Examples.load(source)


def test_the_shipped_rows() -> None:
    """They are of this version's features, of two devices, and the shipped trees' own."""
    loaded = [Examples.load(path) for path in SHIPPED]
    for path, part in zip(SHIPPED, loaded, strict=True):
        assert path.stat().st_size < 1 << 20
        assert all(v["triton"] == "3.6.0" for v in part.provenance["measured"].values())
        assert all(5 <= len(task.slowdown) <= training_rows.MOST_ROWS for task in part.tasks)
        assert all(task.slowdown.min() == 0 for task in part.tasks)
        json.dumps([dict(task.shape) for task in part.tasks])
    devices = {(part.target, part.provenance["device"]) for part in loaded}
    assert devices == {("H200", "NVIDIA H200"), ("H100", "NVIDIA H100 80GB HBM3")}
    about = load_trees(SHIPPED_TREES).about
    assert set(about["kernels"]) == {kernel for part in loaded for kernel in part.kernels}
    assert about["rows"] == sum(len(t.slowdown) for part in loaded for t in part.tasks)


@pytest.mark.slow(seconds=30)
def test_the_shipped_trees_are_of_the_shipped_rows() -> None:
    """A fit of the shipped rows ranks as the shipped trees do."""
    shipped = load_trees(SHIPPED_TREES)
    loaded = [Examples.load(path) for path in SHIPPED]
    made = model_of(loaded, 2)
    assert {**made.about, "fitted": None} == {**shipped.about, "fitted": None}
    for task in loaded[0].tasks[:8]:
        assert made.predict(task.vectors) == pytest.approx(shipped.predict(task.vectors), abs=1e-4)


def train(*arguments: str) -> int:
    """`asmtune model train`."""
    return run(["model", "train", *arguments])


def test_command(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees of one's own rows rank as `learned:FILE.npz`; kernels may be left out."""
    monkeypatch.setattr(training_rows, "SHIPPED", ())
    path = tmp_path / "mine.npz"
    assert train(str(source), "--without", "a", "--output", str(path)) == 0
    assert Trees.load(path).about["kernels"] == ["b", "c"]
    assert make_scorer(f"learned:{path}").effective_name == f"learned:{path}"


def test_bad_input(
    source: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What does not fit is refused in one line, and nothing is written."""
    monkeypatch.setattr(training_rows, "SHIPPED", ())
    output = ("--output", str(tmp_path / "mine.npz"))
    cases = [
        ((str(source), "--without", "z", *output), "--without z"),
        ((str(tmp_path / "no.npz"), *output), "no.npz"),
        (output, "no rows"),
        ((str(source), "--output", str(source)), "is that file"),
    ]
    for arguments, says in cases:
        assert train(*arguments) == 2
        printed = capsys.readouterr()
        assert says in printed.err
        assert printed.err.count("\n") == 1
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    assert train(str(source), *output) == 2
    assert "LightGBM" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["rows.npz"]
