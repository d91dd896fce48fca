"""The learned scorer: its trees, and when the roofline ranks in its place."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from asmtune.base.errors import InputError
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import load_target
from asmtune.predict.score import learned
from asmtune.predict.score.keep import table_of
from asmtune.predict.score.learned import SHIPPED, Learned, load_trees
from asmtune.predict.score.roofline import Roofline
from asmtune.predict.score.scorers import make_scorer
from asmtune.predict.score.trees import Trees
from asmtune.predict.score.vectors import NAMES, Scale, base_columns, vectors
from tests.score.random_features import candidates
from tests.score.test_trees import made_trees


def test_the_shipped_scorer(target: Target) -> None:
    """It gives 1,000 candidates finite scores, the same each time, and knows two devices."""
    scorer = make_scorer("learned")
    assert (scorer.name, scorer.effective_name) == ("learned", "learned")
    task = candidates(7, target, 1000)
    scores = scorer.score(task)
    assert np.isfinite(scores).all()
    assert make_scorer("learned").score(task) == scores
    assert len(set(scores)) > 900
    about = load_trees(SHIPPED).about
    assert set(about["targets"]) == {"H100", "H200"}
    assert {"gemm", "gemm_bias_gelu", "softmax", "attention"} <= set(about["kernels"])
    assert SHIPPED.stat().st_size < 1 << 20


def test_more_of_a_unit_is_never_faster(target: Target) -> None:
    """A config whose units take longer, all else equal, is not ranked above the other."""
    found = [c.features for c in candidates(7, target) if c.features is not None]
    base = base_columns(found, target)
    columns = vectors(base, Scale.of(base))
    before = load_trees(SHIPPED).predict(columns)
    longer = columns.copy()
    rising = [name.startswith("us_") and name.endswith("over least") for name in NAMES]
    longer[:, rising] += 0.5
    after = load_trees(SHIPPED).predict(longer)
    assert (after >= before - 1e-6).all()
    assert after.mean() > before.mean()


def test_few_candidates(target: Target) -> None:
    """With fewer than five compiled configs the roofline ranks."""
    task = candidates(7, target, 4)
    assert make_scorer("learned").score(task) == Roofline().score(task)


def test_notes() -> None:
    """On another target it ranks all the same, and says which devices have been checked."""
    scorer, other = make_scorer("learned"), load_target("A100")
    assert scorer.notes(load_target("H100")) == ()
    assert scorer.effective_name == "learned"
    (note,) = scorer.notes(other)
    assert "H200" in note
    assert other.name in note
    task = candidates(7, other)
    assert scorer.score(task) != Roofline().score(task)
    assert make_scorer("roofline").notes(other) == ()


def test_dtypes(target: Target) -> None:
    """A floating-point type that no row has goes to the roofline, and a note names it."""
    scorer = Learned()
    assert scorer.for_dtypes(("fp16", "i32", "i64", "i1")) is scorer
    other = scorer.for_dtypes(("fp16", "fp64"))
    assert other.effective_name == "roofline"
    assert "none of its training rows are of fp64" in other.notes(target)[0]
    task = candidates(7, target)
    assert other.score(task) == Roofline().score(task)
    assert make_scorer("roofline").for_dtypes(("fp64",)).name == "roofline"


def unusable(case: str, path: Path) -> Path:
    """Write a file of trees that cannot be used, or none."""
    about = {"schema": "another", "targets": ["H200"], "dtypes": ["fp16"], "kernels": []}
    if case == "schema":
        made = made_trees()
        Trees(**{**vars(made), "about": about}).save(path)
    elif case == "damaged":
        path.write_bytes(b"PK\x03\x04 and no more")
    return path


@pytest.mark.parametrize("case", ["schema", "absent", "damaged"])
def test_without_trees(
    case: str, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the shipped trees the roofline ranks and a note says why; one's own are refused."""
    path = unusable(case, tmp_path / "trees.npz")
    monkeypatch.setattr(learned, "SHIPPED", path)
    learned._shipped.cache_clear()
    scorer, task = Learned(), candidates(7, target)
    assert scorer.score(task) == Roofline().score(task)
    assert scorer.effective_name == "roofline"
    (note,) = scorer.notes(target)
    assert note.startswith("ranked by roofline, since learned cannot be used: ")
    with pytest.raises(InputError, match=f"--scorer learned:{path}"):
        make_scorer(f"learned:{path}")
    learned._shipped.cache_clear()


def test_trees_of_ones_own(target: Target, tmp_path: Path) -> None:
    """A file ranks in the place of the shipped trees, whose error is not that of its own."""
    path = tmp_path / "mine.npz"
    shutil.copy(SHIPPED, path)
    scorer = make_scorer(f"learned:{path}")
    path.unlink()
    assert table_of(scorer.effective_name) is None
    assert (scorer.name, scorer.effective_name) == (f"learned:{path}", f"learned:{path}")
    task = candidates(7, target)
    assert scorer.score(task) == make_scorer("learned").score(task)


@pytest.mark.parametrize(
    "changed",
    [{"columns": 1000}, {"targets": [1, 2]}, {"kernels": [["a"]]}, {"dtypes": ["\x1b[31m"]}],
)
def test_wrong_trees_of_ones_own(tmp_path: Path, changed: dict[str, object]) -> None:
    """Trees of other columns, and lists of anything but names, are refused when they are read."""
    path, good = tmp_path / "mine.npz", vars(load_trees(SHIPPED))
    columns = changed.get("columns", len(NAMES))
    Trees(**{**good, "columns": columns, "about": {**good["about"], **changed}}).save(path)
    with pytest.raises(InputError, match="fitted on other features"):
        make_scorer(f"learned:{path}")


@pytest.mark.parametrize("name", ["learned:", "weights:"])
def test_a_file_without_a_name(name: str) -> None:
    """A colon with nothing behind it is refused, and is not the scorer that ships."""
    with pytest.raises(InputError, match=f"--scorer {name}"):
        make_scorer(name)
