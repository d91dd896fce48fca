"""Training rows: measured candidates as the learned scorer's columns, in .npz files.

A file holds numbers and text alone; nothing in it can execute when it is read.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from asmtune.base.atomic_write import write_whole
from asmtune.base.errors import ParseError
from asmtune.base.fingerprint import version_of
from asmtune.core.hardware.model import Target
from asmtune.core.records.verdicts import Features
from asmtune.predict.score.trees import UNREADABLE, check_archive
from asmtune.predict.score.vectors import BASE, Scale, base_columns, schema, vectors

SHIPPED: Final = tuple(sorted((Path(__file__).parent / "rows").glob("*.npz")))
"""The training rows that ship with the package."""

MOST_ROWS: Final = 220
"""Rows kept of a task: its fastest third, and a choice of the rest."""

_MOST_BYTES: Final = 64 << 20


@dataclass(frozen=True, eq=False)
class TaskRows:
    """Measured candidates of one kernel on one shape.

    Attributes:
        kernel, shape, dtype: the task.
        base: `vectors.BASE` columns, a row a candidate.
        scale: from all of the task's candidates, even if the rows are only a part of them.
        slowdown: logarithm of the time over the task's best.
    """

    kernel: str
    shape: Mapping[str, Any]
    dtype: str
    base: NDArray[np.float32]
    scale: Scale
    slowdown: NDArray[np.float32]

    @classmethod
    def of(
        cls,
        task: tuple[str, Mapping[str, Any], str],
        features: Sequence[Features],
        milliseconds: Sequence[float],
        target: Target,
    ) -> TaskRows:
        """Make rows of all measured candidates of a task: its kernel, shape and dtype."""
        base = base_columns(features, target)
        times = np.asarray(milliseconds, dtype=np.float64)
        slowdown = np.log(times / times.min()).astype(np.float32)
        return cls(*task, base, Scale.of(base), slowdown)

    @property
    def vectors(self) -> NDArray[np.float32]:
        """Return the rows that the learned scorer is fitted on."""
        return vectors(self.base, self.scale)

    def thinned(self, most: int = MOST_ROWS) -> TaskRows:
        """Return at most `most` of the rows; the same ones each time."""
        count = len(self.slowdown)
        if count <= most:
            return self
        order = np.argsort(self.slowdown, kind="stable")
        fast, rest = order[: most // 3], order[most // 3 :]
        chosen = np.random.default_rng(0).choice(rest, most - len(fast), replace=False)
        rows = np.sort(np.concatenate([fast, chosen]))
        task = (self.kernel, self.shape, self.dtype)
        return TaskRows(*task, self.base[rows], self.scale, self.slowdown[rows])


@dataclass(frozen=True, eq=False)
class Examples:
    """Training rows of one file or of several.

    Attributes:
        tasks: the rows.
        target: name of the target they were measured on.
        schema: of the columns.
        provenance: device, versions and what else is known of where they are from.
    """

    tasks: tuple[TaskRows, ...]
    target: str
    schema: str
    provenance: Mapping[str, Any]

    @property
    def kernels(self) -> tuple[str, ...]:
        """Return the kernels with rows, in the file's order."""
        return tuple(dict.fromkeys(task.kernel for task in self.tasks))

    def save(self, path: Path) -> None:
        """Write a file; the same rows give the same bytes.

        Raises:
            OSError: it cannot be written.
        """
        tasks = [
            {"kernel": t.kernel, "shape": dict(t.shape), "dtype": t.dtype, "rows": len(t.slowdown)}
            for t in self.tasks
        ]
        about = {
            "schema": self.schema,
            "columns": BASE,
            "target": self.target,
            "provenance": dict(self.provenance),
            "tasks": tasks,
        }
        arrays = {
            "base": np.concatenate([task.base for task in self.tasks]),
            "least": np.stack([task.scale.least for task in self.tasks]),
            "median": np.stack([task.scale.median for task in self.tasks]),
            "slowdown": np.concatenate([task.slowdown for task in self.tasks]),
        }
        text = np.frombuffer(json.dumps(about, sort_keys=True, indent=1).encode(), dtype=np.uint8)
        packed = io.BytesIO()
        halves: dict[str, Any] = {name: each.astype(np.float16) for name, each in arrays.items()}
        np.savez_compressed(packed, about=text, **halves)
        write_whole(path, packed.getvalue())

    @classmethod
    def load(cls, path: Path) -> Examples:
        """Read what `save` wrote.

        Raises:
            ParseError: there is no such file, it is damaged, or it has other columns.
        """
        try:
            check_archive(path, _MOST_BYTES)
            with np.load(path, allow_pickle=False) as file:
                about = json.loads(file["about"].tobytes())
                names = ("base", "least", "median", "slowdown")
                arrays = {name: np.asarray(file[name], dtype=np.float32) for name in names}
            examples = cls(
                tasks=tuple(_tasks(about["tasks"], arrays)),
                target=str(about["target"]),
                schema=str(about["schema"]),
                provenance=dict(about["provenance"]),
            )
        except UNREADABLE as error:
            raise ParseError(f"training rows {path}: {error}") from error
        if examples.schema != schema() or examples.tasks[0].base.shape[1] != len(BASE):
            raise ParseError(
                f"training rows {path}: made with other features; run asmtune model rows"
            )
        return examples


def _tasks(
    about: Sequence[Mapping[str, Any]], arrays: Mapping[str, NDArray[np.float32]]
) -> Iterable[TaskRows]:
    """Return the tasks' own parts of a file's arrays."""
    counts = [int(task["rows"]) for task in about]
    columns = arrays["base"].shape[-1]
    if (
        arrays["base"].ndim != 2
        or len(arrays["base"]) != sum(counts)
        or arrays["slowdown"].shape != (sum(counts),)
        or any(arrays[name].shape != (len(counts), columns) for name in ("least", "median"))
        or min(counts, default=0) < 1
        or not all(np.isfinite(array).all() for array in arrays.values())
    ):
        raise ValueError("its arrays do not fit each other")
    end = 0
    for number, (task, count) in enumerate(zip(about, counts, strict=True)):
        start, end = end, end + count
        scale = Scale(arrays["least"][number], arrays["median"][number])
        yield TaskRows(
            kernel=str(task["kernel"]),
            shape=dict(task["shape"]),
            dtype=str(task["dtype"]),
            base=arrays["base"][start:end],
            scale=scale,
            slowdown=arrays["slowdown"][start:end],
        )


def examples(
    tasks: Iterable[TaskRows],
    target: Target,
    device: str,
    sources: Mapping[str, Mapping[str, str]],
) -> Examples:
    """Thin rows and add their provenance; `sources` has each file's versions by name."""
    return Examples(
        tasks=tuple(task.thinned() for task in tasks),
        target=target.name,
        schema=schema(),
        provenance={"device": device, "measured": dict(sources), "compiled": compiler()},
    )


def compiler() -> dict[str, str]:
    """Return the versions that compile the configs of recorded timings."""
    return {name: version_of(name) for name in ("asmtune", "triton")}
