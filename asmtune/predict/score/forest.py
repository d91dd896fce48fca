"""A fitted forest of regression trees as plain arrays.

It is kept as an .npz file of numbers, which cannot execute code when it is
read, and predicts without scikit-learn.
"""

from __future__ import annotations

import io
import lzma
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asmtune.base.atomic_write import write_whole
from asmtune.base.errors import ParseError
from asmtune.base.trust import trusted_file, trusted_folder

_ARRAYS: Final = {
    "left": np.dtype(np.int32),
    "right": np.dtype(np.int32),
    "feature": np.dtype(np.int32),
    "threshold": np.dtype(np.float32),
    "value": np.dtype(np.float32),
    "roots": np.dtype(np.int32),
}
_MOST_BYTES: Final = 256 << 20
_FIELDS: Final = 16
UNREADABLE: Final = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    EOFError,
    ArithmeticError,
    MemoryError,
    RuntimeError,
    SyntaxError,
    tokenize.TokenError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)
"""Errors that reading a damaged archive raises."""


class Growth(NamedTuple):
    """The shape of a forest: trees, least rows in a leaf, and share of columns tried a split."""

    trees: int
    least_in_leaf: int
    columns_tried: float


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees one after the other; a node's children come after it, a leaf's are itself.

    Attributes:
        left, right: a node's children; left is where the feature is at most the threshold.
        feature: column that a node compares.
        threshold: what it is compared with.
        value: a leaf's prediction.
        roots: first node of each tree.
        columns: of the vectors it was fitted on.
        identity: digest of what it was fitted from.
    """

    left: NDArray[np.int32]
    right: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    value: NDArray[np.float32]
    roots: NDArray[np.int32]
    columns: int
    identity: str

    @classmethod
    def fit(
        cls,
        rows: NDArray[np.float32],
        values: NDArray[Any],
        growth: Growth,
        *,
        weights: NDArray[Any] | None = None,
        jobs: int | None = None,
        identity: str = "",
    ) -> Forest:
        """Fit extremely randomised trees (Geurts et al., 2006), equal for any number of jobs."""
        from sklearn.ensemble import ExtraTreesRegressor

        model = ExtraTreesRegressor(
            growth.trees,
            min_samples_leaf=growth.least_in_leaf,
            max_features=growth.columns_tried,
            n_jobs=jobs,
            random_state=0,
        )
        model.fit(rows, values, sample_weight=weights)
        return cls.of(model.estimators_, rows.shape[1], identity)

    @classmethod
    def of(cls, estimators: Sequence[Any], columns: int, identity: str) -> Forest:
        """Take the trees of fitted scikit-learn regressors."""
        trees = [estimator.tree_ for estimator in estimators]
        sizes = [tree.node_count for tree in trees]
        roots = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        own = np.arange(sum(sizes))
        start = np.repeat(roots, sizes)

        def child(name: str) -> NDArray[np.int32]:
            children = np.concatenate([getattr(tree, name) for tree in trees])
            return np.where(children < 0, own, children + start).astype(np.int32)

        feature = np.concatenate([tree.feature for tree in trees])
        return cls(
            left=child("children_left"),
            right=child("children_right"),
            feature=np.maximum(feature, 0).astype(np.int32),
            threshold=_rounded_down(np.concatenate([tree.threshold for tree in trees])),
            value=np.concatenate([tree.value[:, 0, 0] for tree in trees]).astype(np.float32),
            roots=roots.astype(np.int32),
            columns=columns,
            identity=identity,
        )

    def predict(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the mean of the trees, for each row."""
        count, trees = len(rows), len(self.roots)
        flat = np.ascontiguousarray(rows, dtype=np.float32).ravel()
        nodes = np.repeat(self.roots, count)
        place = np.tile(np.arange(count, dtype=np.int32) * self.columns, trees)
        leaves = nodes.copy()
        walking = np.arange(len(nodes))
        while len(walking):
            low = flat.take(place + self.feature.take(nodes)) <= self.threshold.take(nodes)
            following = np.where(low, self.left.take(nodes), self.right.take(nodes))
            on = np.flatnonzero(following != nodes)
            if len(on) < len(nodes):
                leaves[walking] = following
                walking, following, place = walking[on], following[on], place[on]
            nodes = following
        values = self.value.take(leaves).reshape(trees, count)
        return np.asarray(values.mean(axis=0, dtype=np.float64))

    def save(self, path: Path) -> None:
        """Write the file whole, readable by the user alone.

        Raises:
            OSError: it cannot be written.
        """
        trusted_folder(path.parent, make=True)
        data = io.BytesIO()
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        np.savez(data, columns=self.columns, identity=self.identity, **arrays)
        write_whole(path, data.getvalue(), private=True)

    @classmethod
    def load(cls, path: Path, columns: int, identity: str) -> Forest:
        """Read what `save` wrote, for vectors of that many columns.

        Raises:
            ParseError: there is no such file, it is damaged, or others may have written it.
        """
        try:
            trusted_file(path)
            check_archive(path, _MOST_BYTES)
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: np.asarray(file[name]) for name in _ARRAYS}
                known = (int(file["columns"]), str(file["identity"]))
        except UNREADABLE as error:
            raise ParseError(f"forest {path}: {error}") from error
        if known != (columns, identity):
            raise ParseError(f"forest {path}: fitted from something else")
        forest = cls(**arrays, columns=columns, identity=identity)
        if not forest._is_sound():
            raise ParseError(f"forest {path}: damaged")
        return forest

    def _is_sound(self) -> bool:
        """Return whether every walk from a root ends at a leaf with a number."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        if any(a.dtype != _ARRAYS[name] or a.ndim != 1 for name, a in arrays.items()):
            return False
        nodes = len(self.left)
        if not len(self.roots) or any(len(arrays[n]) != nodes for n in list(_ARRAYS)[:5]):
            return False
        own = np.arange(nodes)
        leaf = (self.left == own) & (self.right == own)
        inner = (self.left > own) & (self.right > own)
        return bool(
            (leaf | inner).all()
            and max(self.left.max(), self.right.max(), self.roots.max()) < nodes
            and self.roots.min() >= 0
            and self.feature.min() >= 0
            and self.feature.max() < self.columns
            and np.isfinite(self.value).all()
        )


def check_archive(path: Path, most_bytes: int) -> None:
    """Refuse an archive that would unpack to more than a limit, before it is unpacked.

    Raises:
        ValueError: it would.
    """
    with zipfile.ZipFile(path) as archive:
        parts = archive.infolist()
        size = sum(part.file_size for part in parts)
    if len(parts) > _FIELDS or size > most_bytes:
        raise ValueError(f"{len(parts)} arrays of {size} bytes")


def _rounded_down(threshold: NDArray[np.float64]) -> NDArray[np.float32]:
    """Round thresholds so that a float32 compares as with the threshold itself."""
    near = threshold.astype(np.float32)
    return np.where(near > threshold, np.nextafter(near, np.float32(-np.inf)), near)
