"""Trees as arrays: safe to read whatever the file holds."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asmtune.base.errors import ParseError
from asmtune.predict.score.trees import Trees, check_archive

COLUMNS = 6
NAMES = ("left", "right", "feature", "threshold", "value", "roots")


def made_trees(seed: int = 0, trees: int = 7, depth: int = 4) -> Trees:
    """Full trees of random splits: node i's children are 2i+1 and 2i+2."""
    generator = np.random.default_rng(seed)
    size, inner = 2 ** (depth + 1) - 1, 2**depth - 1
    own = np.arange(size)
    starts = np.repeat(np.arange(trees) * size, size)
    left = np.tile(np.where(own < inner, 2 * own + 1, own), trees) + starts
    right = np.tile(np.where(own < inner, 2 * own + 2, own), trees) + starts
    count = trees * size
    return Trees(
        left=left.astype(np.int32),
        right=right.astype(np.int32),
        feature=generator.integers(0, COLUMNS, count).astype(np.int32),
        threshold=(generator.integers(-4, 5, count) / 3).astype(np.float32),
        value=generator.normal(size=count).astype(np.float32),
        roots=(np.arange(trees) * size).astype(np.int32),
        columns=COLUMNS,
        about={"rows": 3},
    )


def walked(trees: Trees, row: np.ndarray[Any, Any]) -> float:
    """The sum of the leaves that a row comes to, one node after the other."""
    total = 0.0
    for root in trees.roots:
        node = int(root)
        while trees.left[node] != node:
            is_left = row[trees.feature[node]] <= trees.threshold[node]
            node = int(trees.left[node] if is_left else trees.right[node])
        total += float(trees.value[node])
    return total


@pytest.mark.parametrize(("seed", "trees", "depth"), [(0, 1, 0), (1, 7, 4), (2, 3, 1)])
def test_predictions(seed: int, trees: int, depth: int) -> None:
    """Each row is walked through every tree; values that equal a threshold go left."""
    made = made_trees(seed, trees, depth)
    generator = np.random.default_rng(seed)
    rows = (generator.integers(-4, 5, size=(600, COLUMNS)) / 3).astype(np.float32)
    assert made.predict(rows) == pytest.approx([walked(made, row) for row in rows], abs=1e-5)
    assert len(made.predict(rows[:0])) == 0


def test_saved_and_loaded(tmp_path: Path) -> None:
    """Loaded trees predict the same; equal trees give equal bytes, and nothing else is left."""
    made, path = made_trees(), tmp_path / "a.npz"
    made.save(path)
    first = path.read_bytes()
    made.save(path)
    assert path.read_bytes() == first
    assert [file.name for file in tmp_path.iterdir()] == ["a.npz"]
    x = np.random.default_rng(1).normal(size=(40, COLUMNS)).astype(np.float32)
    loaded = Trees.load(path)
    assert (loaded.predict(x) == made.predict(x)).all()
    assert (loaded.columns, loaded.about) == (COLUMNS, {"rows": 3})


def broken(path: Path, **changes: Any) -> None:
    """Write trees with some arrays changed, objects allowed."""
    made = made_trees()
    arrays = {name: getattr(made, name).copy() for name in NAMES}
    about = np.frombuffer(b'{"columns": 6}', dtype=np.uint8)
    np.savez(path, **{"about": about, **arrays, **changes})


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str, bytes]]:
        return _write, (str(self.path), b"executed")


def _write(path: str, data: bytes) -> None:
    Path(path).write_bytes(data)


@pytest.mark.parametrize("name", ["left", "value", "about"])
def test_nothing_is_unpickled(name: str, tmp_path: Path) -> None:
    """An array of pickled objects is refused, and its code does not run."""
    path, proof = tmp_path / "a.npz", tmp_path / "proof"
    broken(path, **{name: np.array([Bomb(proof)], dtype=object)})
    with pytest.raises(ParseError):
        Trees.load(path)
    assert not proof.exists()


NODES = len(made_trees().left)


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
        {"about": np.frombuffer(b"[1, 2]", np.uint8)},
        {"about": np.frombuffer(b'{"columns": "six"}', np.uint8)},
    ],
    ids=str,
)
def test_unsound_arrays(changes: dict[str, Any], tmp_path: Path) -> None:
    """Indices out of range, loops, wrong shapes and types are refused."""
    path = tmp_path / "a.npz"
    broken(path, **changes)
    with pytest.raises(ParseError):
        Trees.load(path)


def test_damaged_files(tmp_path: Path) -> None:
    """Cut off or with flipped bytes, a file is refused or gives trees that predict."""
    path, generator = tmp_path / "a.npz", random.Random(3)
    made_trees().save(path)
    data = path.read_bytes()
    for number in range(300):
        damaged = bytearray(data)
        for _ in range(4):
            damaged[generator.randrange(len(data))] = generator.randrange(256)
        # The index of an archive stands at its end: hit it often.
        damaged[-generator.randrange(1, 700)] = generator.randrange(256)
        cut = generator.randrange(len(data)) if number % 3 == 0 else len(data)
        path.write_bytes(bytes(damaged[:cut]))
        try:
            made = Trees.load(path)
        except ParseError:
            continue
        x = np.zeros((3, made.columns), np.float32)
        assert np.isfinite(made.predict(x)).all()


def test_what_unpacks_to_too_much(tmp_path: Path) -> None:
    """An archive over the limit is refused before it is unpacked."""
    np.savez_compressed(tmp_path / "a.npz", zeros=np.zeros(1 << 20, np.uint8))
    check_archive(tmp_path / "a.npz", 2 << 20)
    with pytest.raises(ValueError, match="1 arrays of"):
        check_archive(tmp_path / "a.npz", 1 << 19)
