"""The user's own timings refine `learned`: only where they rank the user's recordings better."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from asmtune.base.settings import Settings
from asmtune.compile.workers import Workers
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.records.tuned import TuneKey
from asmtune.core.records.verdicts import Features, Verdict
from asmtune.predict.features.catalog import FEATURES
from asmtune.predict.score.examples import Examples, TaskRows
from asmtune.predict.score.forest import Forest
from asmtune.predict.score.history import History, run_rows
from asmtune.predict.score.learned import Learned
from asmtune.predict.score.refined import RefinedLearned
from asmtune.predict.score.scorer import Candidate
from asmtune.predict.score.scorers import make_scorer, user_scorer
from asmtune.predict.score.vectors import schema
from asmtune.store.database import Store

KERNEL = "pkg.products.matmul"
DEVICE = "NVIDIA Made Up"
UNEVEN = {"tensor_cycles": 6.0, "issue_cycles": 1.0, "latency_cycles": 0.2}
"""Factors on what a config takes of each unit, in the place of the shipped device's 1."""


def features(seed: int, count: int = 150) -> list[Features]:
    """Candidates of a task: what saves tensor cycles costs latency."""
    found = []
    for place, noise, issue in np.random.default_rng(seed).random((count, 3)):
        tilt = np.exp(4.0 * place - 2.0)
        values = {
            "programs": 4000.0,
            "programs_per_sm": 2.0,
            "waves": 15.2,
            "num_warps": 4.0,
            "tensor_cycles": 1e3 * tilt,
            "issue_cycles": 500.0 * issue,
            "latency_cycles": 2e3 / tilt * np.exp(0.1 * noise),
        }
        found.append(Features({**dict.fromkeys(FEATURES, 0.0), **values}))
    return found


def shipped_us(found: Sequence[Features]) -> np.ndarray:
    """Times on the device of the shipped rows."""
    return np.array([1e-3 * sum(f[name] for name in UNEVEN) for f in found])


def uneven_us(found: Sequence[Features], factors: Mapping[str, float] = UNEVEN) -> np.ndarray:
    """Times on a device whose units are slower and faster than the shipped device's."""
    return np.array([1e-3 * sum(f[name] * by for name, by in factors.items()) for f in found])


@pytest.fixture
def base(target: Target, tmp_path: Path) -> Learned:
    """A model that has learned the shipped device's times, of other kernels."""
    tasks = []
    for seed, kernel in enumerate(("a", "b", "c", "d")):
        found = features(seed, 80)
        tasks.append(TaskRows.of((kernel, {}, "float16"), found, list(shipped_us(found)), target))
    path = tmp_path / "shipped.npz"
    Examples(tuple(tasks), "H200", schema(), {"device": "NVIDIA H200"}).save(path)
    return Learned(Settings(cache_dir=tmp_path / "models", jobs=1), (path,))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A user's empty cache."""
    return Settings(cache_dir=tmp_path / "cache", jobs=1)


def save_run(
    settings: Settings, target: Target, seed: int, us: np.ndarray, kernel: str = KERNEL
) -> None:
    """Store a run that timed the first configs of a task."""
    found = features(seed, 150)
    verdicts = [Verdict(Config({"n": i}), kept=True, features=f) for i, f in enumerate(found)]
    times = {verdict.config: float(t) for verdict, t in zip(verdicts, us, strict=False)}
    key = TuneKey(kernel, {"n": seed}, {"x": "fp16"}, DEVICE)
    rows = run_rows(key, target, verdicts, times)
    assert rows is not None
    settings.cache_dir.mkdir(exist_ok=True)
    with Store.open(settings.store_path) as store:
        store.save_examples(key, rows)


def kept(scorer: Learned | RefinedLearned, target: Target, seed: int) -> float:
    """Share of the best speed on the made-up device that the first pick keeps."""
    found = features(seed, 150)
    scores = scorer.score(
        [Candidate(Config({"n": i}), target, features=f) for i, f in enumerate(found)]
    )
    us = uneven_us(found)
    return float(us.min() / us[int(np.argmax(scores))])


def refined(
    base: Learned, settings: Settings, target: Target, kernel: str = KERNEL
) -> RefinedLearned:
    """The scorer of a kernel for the user."""
    return RefinedLearned(base, History(settings), target).for_kernel(kernel)


def test_the_distance_is_the_base_s(base: Learned, settings: Settings, target: Target) -> None:
    """A user's report is widened by the distance from the shipped rows, as without a history."""
    own = [Candidate(Config({"n": n}), target, features=f) for n, f in enumerate(features(50))]
    found = refined(base, settings, target).distance(own)
    assert found is not None
    assert found == base.distance(own)


@pytest.mark.slow(seconds=4)
def test_a_made_up_device(base: Learned, settings: Settings, target: Target) -> None:
    """After 100 timings the wrong first pick is right, for this shape and for others."""
    assert kept(base, target, 50) < 0.7
    save_run(settings, target, 50, uneven_us(features(50, 100)))
    scorer = refined(base, settings, target)
    assert kept(scorer, target, 50) > 0.95
    others = range(60, 64)
    before = np.mean([kept(base, target, seed) for seed in others])
    assert np.mean([kept(scorer, target, seed) for seed in others]) > max(0.9, before)
    note = scorer.notes(target)[-1]
    assert note.startswith(f"refined by 100 timings of this store on {DEVICE}")


@pytest.mark.slow(seconds=8)
def test_a_worker_fits(
    base: Learned, settings: Settings, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search has a worker fit the correction, which ranks as one that is fitted here."""
    save_run(settings, target, 50, uneven_us(features(50, 100)))
    here, elsewhere = (refined(base, settings, target) for _ in range(2))
    expected = kept(here, target, 60)
    workers = Workers(2)
    with monkeypatch.context() as patch:
        patch.setattr(Forest, "fit", None)
        elsewhere.prepare(workers)
        assert kept(elsewhere, target, 60) == expected
    assert elsewhere.notes(target) == here.notes(target)


def test_workers_of_other_machines_fit_nothing(
    base: Learned, settings: Settings, target: Target
) -> None:
    """A cluster's workers may not see the model's file: the first ranking fits here."""
    save_run(settings, target, 50, uneven_us(features(50, 100)))
    scorer = refined(base, settings, target)
    workers = Workers(2)
    workers.is_local = False
    scorer.prepare(workers)
    assert kept(scorer, target, 50) > 0.95


@pytest.mark.slow(seconds=2)
def test_a_recording_is_ranked_once(
    base: Learned, settings: Settings, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check and fit rank each recorded task once by the shipped model, whatever is left out."""
    for seed in range(50, 54):
        save_run(settings, target, seed, uneven_us(features(seed, 30)))
    ranked: list[int] = []
    rank_columns = Learned.rank_columns

    def noted(own: Learned, columns: NDArray[np.float32]) -> NDArray[np.float64]:
        ranked.append(len(columns))
        return rank_columns(own, columns)

    monkeypatch.setattr(Learned, "rank_columns", noted)
    kept(refined(base, settings, target), target, 60)
    assert ranked == [30, 30, 30, 30, 150]


@pytest.mark.slow(seconds=2)
def test_another_kernel(base: Learned, settings: Settings, target: Target) -> None:
    """Timings of two kernels refine a third; those of one cannot be checked, and are not used."""
    save_run(settings, target, 50, uneven_us(features(50, 100)))
    alone = refined(base, settings, target, "pkg.else.kernel")
    assert alone.notes(target)[-1] == (
        f"your 100 timings were not used: all are of {KERNEL}, "
        "and another kernel takes those of two"
    )
    save_run(settings, target, 51, uneven_us(features(51, 100)), "pkg.second.kernel")
    both = refined(base, settings, target, "pkg.else.kernel")
    others = range(60, 64)
    before = [kept(base, target, seed) for seed in others]
    assert [kept(alone, target, seed) for seed in others] == before
    assert np.mean([kept(both, target, seed) for seed in others]) > np.mean(before)


def test_no_better_no_use(base: Learned, settings: Settings, target: Target) -> None:
    """Timings that make the ranking of each other worse are not used, and a note says so."""
    opposite = {"tensor_cycles": 0.2, "issue_cycles": 1.0, "latency_cycles": 6.0}
    save_run(settings, target, 50, uneven_us(features(50, 100)))
    save_run(settings, target, 51, uneven_us(features(51, 100), opposite))
    scorer = refined(base, settings, target)
    task = [Candidate(Config({"n": i}), target, features=f) for i, f in enumerate(features(7))]
    (note,) = scorer.notes(target)
    assert note.startswith("your 200 timings were not used: they rank your own recordings")
    assert scorer.score(task) == base.score(task)


def test_no_history(base: Learned, settings: Settings, target: Target) -> None:
    """Without timings the ranking and the notes are the shipped ones, and no file is made."""
    scorer = refined(base, settings, target)
    task = [Candidate(Config({"n": i}), target, features=f) for i, f in enumerate(features(7))]
    assert scorer.score(task) == base.score(task)
    assert scorer.notes(target) == base.notes(target)
    assert not settings.cache_dir.exists()


def test_few_timings(base: Learned, settings: Settings, target: Target) -> None:
    """Fewer than 20 timings are counted, and not used."""
    save_run(settings, target, 50, uneven_us(features(50, 12)))
    scorer = refined(base, settings, target)
    assert scorer.notes(target) == (
        *base.notes(target),
        "your 12 timings were not used: at least 20 are needed",
    )


def test_replays_see_shipped_rows_alone(base: Learned, settings: Settings, target: Target) -> None:
    """A scorer without a kernel has no history, and neither has what a replay makes by name."""
    save_run(settings, target, 50, uneven_us(features(50, 100)))
    assert refined(base, settings, target).without_kernel("a") == base.without_kernel("a")
    assert refined(base, settings, target).without_kernel(KERNEL) is base
    assert isinstance(make_scorer("learned"), Learned)
    assert isinstance(user_scorer("learned", settings, target), RefinedLearned)
    assert user_scorer("roofline", settings, target).name == "roofline"


def test_files_of_a_folder(
    base: Learned, settings: Settings, target: Target, tmp_path: Path
) -> None:
    """A file of `asmtune model train` refines too; what is damaged or of other features is told."""
    folder = tmp_path / "rows"
    folder.mkdir()
    mine = replace(settings, training=str(folder))
    found = features(50, 100)
    task = TaskRows.of(("products", {"n": 50}, "fp16"), found, list(uneven_us(found)), target)
    Examples((task,), target.name, schema(), {"device": DEVICE}).save(folder / "mine.npz")
    Examples((task,), target.name, "old", {"device": DEVICE}).save(folder / "old.npz")
    (folder / "torn.npz").write_bytes(b"PK\x03\x04 torn")
    scorer = refined(base, mine, target)
    assert kept(scorer, target, 50) > 0.95
    old, torn, used = scorer.notes(target)[-3:]
    assert "old.npz: made with other features" in old
    assert "torn.npz" in torn
    assert torn.endswith("it was left out")
    assert used.startswith(f"refined by 100 timings of 1 file of {folder} on {DEVICE}")


def test_rows_of_other_features_are_left_out(
    base: Learned, settings: Settings, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs that an asmtune with other features has stored are not read as these."""
    monkeypatch.setattr("asmtune.predict.score.history.schema", lambda: "another")
    save_run(settings, target, 50, uneven_us(features(50, 100)))
    scorer = refined(base, settings, target)
    assert scorer.notes(target) == base.notes(target)


def test_a_store_that_cannot_be_read(base: Learned, settings: Settings, target: Target) -> None:
    """A store that cannot be named is told in a line, and the shipped model ranks."""
    broken = replace(settings, store_url="postgresql://me:a/b:c@d@e/f")
    scorer = refined(base, broken, target)
    (note,) = scorer.notes(target)
    assert note.endswith("its timings do not refine the ranking")
    task = [Candidate(Config({"n": i}), target, features=f) for i, f in enumerate(features(7))]
    assert scorer.score(task) == base.score(task)


def test_it_is_deterministic_and_needs_no_writing(
    base: Learned, settings: Settings, target: Target
) -> None:
    """Equal stores give equal scores, from a read-only folder as well, which stays as it is."""
    save_run(settings, target, 50, uneven_us(features(50, 100)))
    task = [Candidate(Config({"n": i}), target, features=f) for i, f in enumerate(features(7))]
    first = refined(base, settings, target).score(task)
    copy = settings.cache_dir.with_name("copy")
    shutil.copytree(settings.cache_dir, copy)
    before = sorted(path.name for path in copy.iterdir())
    copy.chmod(0o555)
    try:
        assert refined(base, replace(settings, cache_dir=copy), target).score(task) == first
        assert sorted(path.name for path in copy.iterdir()) == before
    finally:
        copy.chmod(0o755)
