"""Boosted regression trees as plain arrays.

They lie in an .npz file of numbers and text, which cannot execute code when it is read, and need
numpy alone.
"""

from __future__ import annotations

import io
import json
import lzma
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from asmtune.base.atomic_write import write_whole
from asmtune.base.errors import ParseError

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

_ROWS_AT_ONCE: Final = 128
"""Rows that walk through the trees together: 20,000 take 0.4 s so, and 1.6 s all at once."""

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


@dataclass(frozen=True, eq=False)
class Trees:
    """Trees one after the other, whose values are summed.

    A node's children come after it; those of a leaf are the leaf itself.

    Attributes:
        left, right: a node's children; left is where the feature is at most the threshold.
        feature: column that a node compares.
        threshold: what it is compared with.
        value: what a leaf adds to the prediction.
        roots: first node of each tree.
        columns: number of columns of the vectors they were fitted on.
        about: JSON of what they were fitted on.
    """

    left: NDArray[np.int32]
    right: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    value: NDArray[np.float32]
    roots: NDArray[np.int32]
    columns: int
    about: Mapping[str, Any]

    def predict(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the sum of the trees, for each row."""
        starts = range(0, len(rows), _ROWS_AT_ONCE)
        parts = [self._predict(rows[start : start + _ROWS_AT_ONCE]) for start in starts]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _predict(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
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
        return np.asarray(values.sum(axis=0, dtype=np.float64))

    def save(self, path: Path) -> None:
        """Write the file whole; equal trees give equal bytes.

        Raises:
            OSError: it cannot be written.
        """
        text = json.dumps({**self.about, "columns": self.columns}, sort_keys=True)
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        data = io.BytesIO()
        about = np.frombuffer(text.encode(), dtype=np.uint8)
        np.savez_compressed(data, about=about, **arrays)
        write_whole(path, data.getvalue())

    @classmethod
    def load(cls, path: Path) -> Trees:
        """Read what `save` wrote.

        Raises:
            ParseError: there is no such file, or it is damaged.
        """
        try:
            check_archive(path, _MOST_BYTES)
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: np.asarray(file[name]) for name in _ARRAYS}
                about = dict(json.loads(file["about"].tobytes()))
            trees = cls(**arrays, columns=int(about.pop("columns")), about=about)
            is_sound = trees._is_sound()
        except UNREADABLE as error:
            raise ParseError(f"trees {path}: {error}") from error
        if not is_sound:
            raise ParseError(f"trees {path}: damaged")
        return trees

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
