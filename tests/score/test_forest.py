"""Forests as arrays: equal to scikit-learn's, and safe to read whatever the file holds."""

from __future__ import annotations

import random
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor

from asmtune.base.errors import ParseError
from asmtune.predict.score.forest import Forest, check_archive

COLUMNS = 6


def fitted(seed: int = 0, rows: int = 300, **options: Any) -> ExtraTreesRegressor:
    """A small forest of scikit-learn's."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, COLUMNS)).astype(np.float32)
    model = ExtraTreesRegressor(**{"n_estimators": 7, "random_state": seed, **options})
    return model.fit(x, x[:, 0] * x[:, 1] + generator.normal(size=rows))


def forest(identity: str = "id") -> Forest:
    """The same as arrays."""
    return Forest.of(fitted().estimators_, COLUMNS, identity)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 120),
    trees=st.integers(1, 5),
    leaf=st.integers(1, 9),
    kind=st.sampled_from([ExtraTreesRegressor, RandomForestRegressor]),
)
def test_predicts_as_scikit_learn(seed: int, rows: int, trees: int, leaf: int, kind: Any) -> None:
    """Predictions equal the fitted model's, on coarse values that meet thresholds exactly too."""
    generator = np.random.default_rng(seed)
    x = generator.integers(-4, 5, size=(rows, COLUMNS)).astype(np.float32) / 3
    model = kind(trees, min_samples_leaf=leaf, random_state=seed).fit(x, generator.random(rows))
    asked = np.vstack([x, generator.normal(size=(50, COLUMNS)).astype(np.float32)])
    predicted = Forest.of(model.estimators_, COLUMNS, "").predict(asked)
    assert predicted == pytest.approx(model.predict(asked), abs=1e-6)


def test_saved_and_loaded(tmp_path: Path) -> None:
    """A loaded forest predicts the same; its file is the user's alone, and nothing else is left."""
    made, path = forest(), tmp_path / "models" / "a.npz"
    made.save(path)
    made.save(path)
    assert [file.name for file in path.parent.iterdir()] == ["a.npz"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    x = np.random.default_rng(1).normal(size=(40, COLUMNS)).astype(np.float32)
    assert (Forest.load(path, COLUMNS, "id").predict(x) == made.predict(x)).all()
    for columns, identity in ((COLUMNS, "other"), (COLUMNS + 1, "id")):
        with pytest.raises(ParseError, match="fitted from something else"):
            Forest.load(path, columns, identity)


def broken(path: Path, **changes: Any) -> None:
    """Write a forest with some arrays changed, objects allowed."""
    made = forest()
    names = ("left", "right", "feature", "threshold", "value", "roots")
    arrays = {name: getattr(made, name).copy() for name in names}
    np.savez(path, **{"columns": COLUMNS, "identity": "id", **arrays, **changes})


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str, bytes]]:
        return _write, (str(self.path), b"executed")


def _write(path: str, data: bytes) -> None:
    Path(path).write_bytes(data)


@pytest.mark.parametrize("name", ["left", "value", "columns", "identity"])
def test_nothing_is_unpickled(name: str, tmp_path: Path) -> None:
    """An array of pickled objects is refused, and its code does not run."""
    path, proof = tmp_path / "a.npz", tmp_path / "proof"
    broken(path, **{name: np.array([Bomb(proof)], dtype=object)})
    with pytest.raises(ParseError):
        Forest.load(path, COLUMNS, "id")
    assert not proof.exists()


NODES = len(forest().left)


@pytest.mark.parametrize(
    "changes",
    [
        {"left": np.zeros(NODES, np.int32)},
        {"right": np.full(NODES, NODES, np.int32)},
        {"left": np.full(NODES, -1, np.int32)},
        {"feature": np.full(NODES, COLUMNS, np.int32)},
        {"feature": np.full(NODES, -1, np.int32)},
        {"feature": np.zeros(NODES - 1, np.int32)},
        {"value": np.full(NODES, np.nan, np.float32)},
        {"value": np.zeros(NODES, np.float64)},
        {"roots": np.array([NODES], np.int32)},
        {"roots": np.array([-1], np.int32)},
        {"roots": np.array([], np.int32)},
        {"threshold": np.zeros((NODES, 1), np.float32)},
        {"threshold": np.array(["text"])},
        {"columns": np.array([1, 2])},
    ],
    ids=str,
)
def test_unsound_arrays(changes: dict[str, Any], tmp_path: Path) -> None:
    """Indices out of range, loops, wrong shapes and types are refused."""
    path = tmp_path / "a.npz"
    broken(path, **changes)
    with pytest.raises(ParseError):
        Forest.load(path, COLUMNS, "id")


def test_damaged_files(tmp_path: Path) -> None:
    """Cut off or with flipped bytes, a file is refused or gives a forest that predicts."""
    path, generator = tmp_path / "a.npz", random.Random(3)
    forest().save(path)
    data = path.read_bytes()
    x = np.zeros((3, COLUMNS), np.float32)
    for number in range(300):
        damaged = bytearray(data)
        for _ in range(4):
            damaged[generator.randrange(len(data))] = generator.randrange(256)
        # The index of an archive stands at its end: hit it often.
        damaged[-generator.randrange(1, 700)] = generator.randrange(256)
        cut = generator.randrange(len(data)) if number % 3 == 0 else len(data)
        path.write_bytes(bytes(damaged[:cut]))
        try:
            made = Forest.load(path, COLUMNS, "id")
        except ParseError:
            continue
        assert np.isfinite(made.predict(x)).all()


def test_what_unpacks_to_too_much(tmp_path: Path) -> None:
    """An archive over the limit is refused before it is unpacked."""
    np.savez_compressed(tmp_path / "a.npz", zeros=np.zeros(1 << 20, np.uint8))
    check_archive(tmp_path / "a.npz", 2 << 20)
    with pytest.raises(ValueError, match="1 arrays of"):
        check_archive(tmp_path / "a.npz", 1 << 19)
