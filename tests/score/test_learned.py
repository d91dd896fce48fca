"""The learned scorer: what it is fitted on, where it is kept, and when it stands back."""

from __future__ import annotations

import json
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asmtune.base.errors import ParseError
from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import load_target
from asmtune.core.records.verdicts import Features
from asmtune.predict.features.catalog import FEATURES
from asmtune.predict.score import examples, learned
from asmtune.predict.score.examples import Examples, TaskRows
from asmtune.predict.score.learned import DATA, Learned, fit, rank
from asmtune.predict.score.roofline import Roofline
from asmtune.predict.score.scorer import Candidate
from asmtune.predict.score.scorers import make_scorer
from asmtune.predict.score.vectors import schema


def features(seed: int, count: int = 40) -> list[Features]:
    """Candidates of a task with random cycles and registers."""
    generator = np.random.default_rng(seed)
    found = []
    for row in generator.random((count, 4)):
        values = {
            "programs": 4000.0,
            "programs_per_sm": 2.0,
            "waves": 15.2,
            "num_warps": 4.0,
            "tensor_cycles": 1e4 * row[0],
            "issue_cycles": 1e4 * row[1],
            "latency_cycles": 3e4 * row[2],
            "regs_per_thread": float(int(32 + 200 * row[3])),
        }
        found.append(Features({**dict.fromkeys(FEATURES, 0.0), **values}))
    return found


def times(found: Sequence[Features]) -> list[float]:
    """Give times in which registers count, which the roofline does not know."""
    return [1 + f["regs_per_thread"] + 1e-3 * f["issue_cycles"] for f in found]


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


def candidates(seed: int, target: Target, count: int = 40) -> list[Candidate]:
    """Compiled candidates of one task."""
    found = features(seed, count)
    return [Candidate(Config({"n": i}), target, features=f) for i, f in enumerate(found)]


def test_it_learns(source: Path, target: Target, empty_settings: Settings) -> None:
    """On a task never seen it ranks by what counted in the training, better than the roofline."""
    task = candidates(99, target)
    took = np.array(times([c.features for c in task if c.features is not None]))
    by_learned = Learned(empty_settings, (source,)).score(task)
    by_roofline = Roofline().score(task)
    assert np.corrcoef(by_learned, -took)[0, 1] > 0.7
    assert np.corrcoef(by_learned, took)[0, 1] < np.corrcoef(by_roofline, took)[0, 1]


def test_the_fit_is_deterministic(tasks: tuple[TaskRows, ...]) -> None:
    """Equal rows give equal forests, on one processor as on two."""
    one, two = fit(tasks, 1, ""), fit(tasks, 2, "")
    for name in ("left", "right", "feature", "threshold", "value", "roots"):
        assert (getattr(one, name) == getattr(two, name)).all()


def test_the_cache(
    source: Path, target: Target, empty_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second scorer reads the first one's forest; what is no forest is replaced by one."""
    task = candidates(7, target)
    scores = Learned(empty_settings, (source,)).score(task)
    (path,) = (empty_settings.cache_dir / "models").iterdir()
    assert path.suffix == ".npz"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    whole = path.read_bytes()
    path.write_bytes(b"PK\x03\x04")
    assert Learned(empty_settings, (source,)).score(task) == scores
    assert len(path.read_bytes()) == len(whole)
    monkeypatch.setattr(learned, "fit", pytest.fail)
    assert Learned(empty_settings, (source,)).score(task) == scores


def test_a_kernel_is_left_out(
    source: Path,
    tasks: tuple[TaskRows, ...],
    target: Target,
    empty_settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For a kernel it was trained on, it is fitted on the others' rows alone."""
    seen: list[list[str]] = []

    def watch(given: Sequence[TaskRows], jobs: int, identity: str) -> Any:
        seen.append([task.kernel for task in given])
        return fit(given, jobs, identity)

    monkeypatch.setattr(learned, "fit", watch)
    scorer, task = Learned(empty_settings, (source,)), candidates(7, target)
    without = scorer.without_kernel("b")
    assert without.name == "learned"
    assert without.score(task) != scorer.score(task)
    assert seen == [["a", "c", "a", "c"], ["a", "b", "c"] * 2]
    assert scorer.without_kernel("never seen") is scorer
    others = [t for t in Examples.load(source).tasks if t.kernel != "b"]
    found = [c.features for c in task if c.features is not None]
    by_hand = rank(fit(others, 1, ""), learned.base_columns(found, target))
    assert without.score(task) == by_hand.tolist()
    assert len(list((empty_settings.cache_dir / "models").iterdir())) == 1


def test_notes(source: Path, target: Target, empty_settings: Settings) -> None:
    """On another target it ranks all the same, and says that the H200 alone has been checked."""
    scorer, other = Learned(empty_settings, (source,)), load_target("A100")
    assert scorer.notes(target) == ()
    assert scorer.effective_name == "learned"
    (note,) = scorer.notes(other)
    assert "checked on timings of H200 alone" in note
    assert other.name in note
    task = candidates(7, other)
    assert scorer.score(task) != Roofline().score(task)
    assert make_scorer("roofline").notes(other) == ()


def test_dtypes(source: Path, target: Target, empty_settings: Settings) -> None:
    """A floating-point type that no row has goes to the roofline, and a note names it."""
    scorer = Learned(empty_settings, (source,))
    assert scorer.for_dtypes(("fp16", "i32", "i64", "i1")) is scorer
    other = scorer.for_dtypes(("fp16", "fp64"))
    assert other.effective_name == "roofline"
    assert "none of its training rows are of fp64" in other.notes(target)[0]
    task = candidates(7, target)
    assert other.score(task) == Roofline().score(task)
    assert make_scorer("roofline").for_dtypes(("fp64",)).name == "roofline"


@pytest.mark.parametrize("case", ["schema", "absent", "damaged", "none"])
def test_without_rows(
    case: str, tasks: tuple[TaskRows, ...], target: Target, tmp_path: Path
) -> None:
    """Without rows, or with rows of other features, the roofline ranks and a note says why."""
    path = tmp_path / "rows.npz"
    if case == "schema":
        Examples(tasks, "H200", "another", {}).save(path)
    elif case == "damaged":
        path.write_bytes(b"PK\x03\x04 and no more")
    sources = () if case == "none" else (path,)
    scorer, task = Learned(Settings(cache_dir=tmp_path / "cache"), sources), candidates(7, target)
    assert scorer.score(task) == Roofline().score(task)
    assert scorer.without_kernel("a") is scorer
    assert scorer.effective_name == "roofline"
    (note,) = scorer.notes(target)
    assert note.startswith("ranked by roofline, since learned cannot be used: ")
    says = {"schema": "other features", "none": "no training rows are installed"}
    assert says.get(case, "training rows ") in note


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
    assert len(thin.slowdown) == examples.MOST_ROWS
    fastest = np.sort(task.slowdown)[: examples.MOST_ROWS // 3]
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


def test_the_shipped_rows() -> None:
    """They are of this version's features, of two devices, with provenance, and small."""
    files = sorted(DATA.glob("*.npz"))
    assert files
    kernels: list[str] = []
    devices = set()
    for path in files:
        assert path.stat().st_size < 1 << 20
        loaded = Examples.load(path)
        devices.add((loaded.target, loaded.provenance["device"]))
        assert all(v["triton"] == "3.6.0" for v in loaded.provenance["measured"].values())
        assert all(5 <= len(task.slowdown) <= examples.MOST_ROWS for task in loaded.tasks)
        assert all(task.slowdown.min() == 0 for task in loaded.tasks)
        kernels += loaded.kernels
        json.dumps([dict(task.shape) for task in loaded.tasks])
    assert devices == {("H200", "NVIDIA H200"), ("H100", "NVIDIA H100 80GB HBM3")}
    assert {"gemm", "gemm_bias_gelu", "softmax", "attention"} <= set(kernels)
    assert len(kernels) > 30


@pytest.mark.slow(seconds=4)
def test_the_shipped_scorer(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fitted on all shipped rows it gives 1,000 candidates finite scores, the same each time."""
    # Trees differ in their draws alone: a few of them are fitted on all rows as well.
    monkeypatch.setattr(learned, "GROWTH", learned.GROWTH._replace(trees=4))
    scorer = make_scorer("learned")
    assert scorer.name == "learned"
    assert scorer.notes(target) == ()
    task = candidates(7, target, 1000)
    scores = scorer.score(task)
    assert np.isfinite(scores).all()
    assert scorer.score(task) == scores
